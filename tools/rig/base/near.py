# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starts one compile through the compile cache, by names that every checkout shares.

A cache finds an object again when the command and the text are the same. Absolute paths
of a checkout, its environment and its dependencies stand in both. So a build's work
folder holds links to those, and what a compile is told is the way over the links, which
is the same for every checkout: ``../../near/src/csrc/x.cu``. It holds for headers too,
as the compiler names them by the folder that it found them in.

Runs as a plain script for each compile, without the package: ``near.py COMPILER
ARGUMENTS``. What it does comes from the environment, so that the command that ninja
compares is the same whatever cache is chosen:

``RIG_CACHE``
    The cache's program; without it the compiler is started directly.
``RIG_CACHE_DIR``
    Its folder, if it has one on this machine. A full disk there must fail no compile.
``RIG_CACHE_SOCKET``
    The socket of the build's own cache server, if it has one.
``RIG_CACHE_SHARED``
    ``HOST:PORT`` of a cache that several machines share. The first compile that cannot
    reach it makes the file ``away`` beside the socket, and no other one tries.
``RIG_NEAR``
    One path a line: the work folder, then by turns a path and its link.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # every millisecond is paid once a compile
    from collections.abc import Mapping, Sequence

AWAY = "away"

CONNECT_S = 2.0

ROOM = 64 << 20
"""Bytes that the cache's disk must have free; one object with its text is less."""

_OUTPUTS = frozenset({"-o", "-MF", "--output-file", "--dependency-output"})
_KEPT = frozenset(
    {"-MT", "-MQ", "-D", "-U", "-x", "-ccbin", "--compiler-bindir", "-Xcompiler"}
    | {"--compiler-options", "--options-file", "-Xcudafe", "-Xptxas", "-Xlinker"}
)
_GLUED = ("-I", "-L", "-isystem=", "-isystem", "-iquote", "-idirafter", "-include=")
_SHORT = {
    # torch writes the long names, which ccache takes for something that it cannot cache
    "--generate-dependencies-with-compile": "-MD",
    "--generate-nonsystem-dependencies-with-compile": "-MMD",
    "--dependency-output": "-MF",
}


def rewrite(
    words: Sequence[str], pairs: Sequence[Sequence[str]], home: str, cwd: str
) -> list[str]:
    """Return a compile's arguments with paths that every checkout shares.

    Parameters
    ----------
    words
        The arguments, without the compiler.
    pairs
        Each a path and the link in the work folder that stands for it.
    home
        The work folder. A compile that is started elsewhere keeps its paths: the way
        from there to the links is another in each checkout.
    cwd
        Where the compile is started, links resolved.
    """
    words = [_SHORT.get(word, word) for word in words]
    if not home or not _below(cwd, home):
        return words
    by_length = sorted([*pairs, (home, home)], key=lambda pair: -len(pair[0]))

    def near(path: str) -> str:
        for start, link in by_length:
            if _below(path, start):
                return os.path.relpath(link, cwd) + path[len(start) :]
        return path

    told, before = [], ""
    for word in words:
        if before in _OUTPUTS:
            told.append(_here(word, cwd))
        elif before in _KEPT:
            told.append(word)
        elif word.startswith("/"):
            told.append(near(word))
        else:
            glue = next((g for g in _GLUED if word.startswith(f"{g}/")), "")
            told.append(glue + near(word[len(glue) :]) if glue else word)
        before = word
    return told


def command(
    argv: Sequence[str], env: Mapping[str, str], cwd: str
) -> tuple[list[str], dict[str, str]]:
    """Return what to start for ``COMPILER ARGUMENTS``, and its environment."""
    compiler, *words = argv
    theirs = dict(env)
    home, *paths = env.get("RIG_NEAR", "").split("\n")
    told = rewrite(words, list(zip(paths[::2], paths[1::2])), home, cwd)
    cache = env.get("RIG_CACHE", "")
    if not cache or not _room(env.get("RIG_CACHE_DIR", "")) or not _served(env):
        return [compiler, *told], theirs
    if os.path.basename(compiler) == "nvcc":
        told = _spelled_out(told, theirs)
    # PWD is what a shell was told, often another way to the same folder
    return [cache, compiler, *told], {**theirs, "PWD": cwd}


def _spelled_out(words: Sequence[str], env: dict[str, str]) -> list[str]:
    """Return nvcc's arguments with those that it would take from the environment.

    ccache 4.7 does not look at these variables: it would hand out an object of another
    host compiler.
    """
    # at blanks, as nvcc itself cuts them
    first = env.pop("NVCC_PREPEND_FLAGS", "").split()
    last = env.pop("NVCC_APPEND_FLAGS", "").split()
    told = [*first, *words, *last]
    host = env.get("NVCC_CCBIN", "")
    named = ("-ccbin", "--compiler-bindir")
    if host and not any(word.startswith(named) for word in told):
        told = ["-ccbin", host, *told]
    # as two words: of a compiler that is named by one, ccache looks at the name alone
    split = [word.partition("=") for word in told]
    return [
        part
        for word, (name, sep, value) in zip(told, split)
        for part in ((name, value) if sep and name in named else (word,))
    ]


def _served(env: Mapping[str, str]) -> bool:
    """Say whether the cache's servers answer; without, sccache fails or waits long."""
    path, shared = env.get("RIG_CACHE_SOCKET", ""), env.get("RIG_CACHE_SHARED", "")
    if not path:
        return True
    away = os.path.join(os.path.dirname(path), AWAY)
    if os.path.exists(away):
        return False
    import socket

    try:
        with socket.socket(socket.AF_UNIX) as ours:
            ours.settimeout(CONNECT_S)
            ours.connect(path)
    except OSError:
        return False
    return not shared or reached(shared) or _said(away)


def reached(address: str) -> bool:
    """Say whether something listens at ``HOST:PORT``."""
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True


def _said(away: str) -> bool:
    try:
        with open(away, "w"):
            pass
    except OSError:
        pass
    return False


def _room(folder: str) -> bool:
    """Say whether the cache can take one more object: ccache fails when it cannot."""
    if not folder:
        return True
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        held = os.statvfs(folder)
    except OSError:
        return False
    names = held.f_favail > 0 or not held.f_files
    enough = names and held.f_bavail * held.f_frsize >= ROOM
    return enough and os.access(folder, os.W_OK | os.X_OK)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _here(path: str, cwd: str) -> str:
    """Return an output's path from `cwd`, where it lies below."""
    folder = os.path.realpath(os.path.join(cwd, os.path.dirname(path)))
    name = os.path.join(folder, os.path.basename(path))
    return os.path.relpath(name, cwd) if _below(folder, cwd) else path


def main(argv: Sequence[str]) -> int:
    """Become the compile."""
    if not argv:
        sys.stderr.write("usage: near.py COMPILER ARGUMENTS\n")
        return 2
    started, env = command(argv, os.environ, os.getcwd())
    try:
        os.execvpe(started[0], started, env)
    except OSError as exc:
        sys.stderr.write(f"{started[0]}: {exc.strerror}\n")
    return 127


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
