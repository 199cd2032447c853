# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Signs that a process belongs to an environment although it maps nothing of it.

``<venv>/bin/python`` is a link: the program that runs is the base interpreter, and
until it imports an extension module only its arguments and its environment tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import regex as re

from tools.rig.base import redact
from tools.rig.host import processes

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]{0,2}\Z")
_SERVER_TITLE = "VLLM::"
_DELETED = " (deleted)"


@dataclass(frozen=True)
class Names:
    """The paths of environment and checkout as one mount namespace shows them.

    ``typed`` holds further paths of the environment that lead there through links. The
    other fields are what paths inside begin with: real ones inside the environment,
    inside either, and those inside the environment as people type them.
    """

    venv: tuple[bytes, ...]
    checkout: tuple[bytes, ...] = ()
    typed: tuple[bytes, ...] = ()
    inside_venv: tuple[bytes, ...] = field(init=False)
    inside: tuple[bytes, ...] = field(init=False)
    typed_inside: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name, paths in (
            ("inside_venv", self.venv),
            ("inside", self.venv + self.checkout),
            ("typed_inside", self.venv + self.typed),
        ):
            object.__setattr__(self, name, tuple(path + b"/" for path in paths))


@dataclass(frozen=True)
class Programs:
    """Where the programs of an environment are.

    ``bin`` is the identity of its folder ``bin``. For one that a link brings into force
    ``home`` is what paths through that link begin with, and ``linked`` the identity of
    the folder that they lead to now.
    """

    bin: tuple[int, int] | None = None
    home: bytes = b"\0"
    linked: tuple[int, int] | None = None


def is_python(program: str) -> bool:
    """Say whether a program is a Python interpreter, by its name."""
    name = program.removesuffix(_DELETED).rpartition("/")[2]
    return _PYTHON.match(name) is not None


def interpreter(
    pid: int, names: Names, programs: Programs, led: Callable[[], bool], proc: Path
) -> str:
    """Return why a running Python belongs to the environment, or "".

    Parameters
    ----------
    programs
        Where the environment's programs are.
    led
        Says whether the link to the one in force led to this environment when the
        process was started.
    """
    words = processes.cmdline(pid, proc)
    program = words[0] if words else ""
    why = f"was started as {program}"
    if os.fsencode(program).startswith(names.inside_venv):
        return why
    if os.fsencode(program).startswith((*names.typed_inside, programs.home)):
        return why if led() else ""
    folder = _folder_of(pid, program, proc)
    if folder is not None:
        where = identity(folder)
        if where is not None and where in (programs.bin, programs.linked):
            # through a link of the checkout, or under another mount's name
            return why if programs.linked is None or led() else ""
        if os.path.exists(os.path.join(folder, b"..", b"pyvenv.cfg")):
            # it runs from another environment and only inherited the variable
            return ""
    active = processes.variable(pid, "VIRTUAL_ENV", proc)
    inside = os.fsencode(active.rstrip("/") + "/")
    if inside.startswith(names.inside_venv) or (
        inside.startswith((*names.typed_inside, programs.home)) and led()
    ):
        return f"has VIRTUAL_ENV={active}"
    return ""


def arguments(
    words: Sequence[str],
    names: Names,
    home: bytes = b"\0",
    *,
    elsewhere: bool = False,
) -> str:
    """Return why a command line alone makes a suspect, or "".

    A path that is merely an argument, as an editor has it, is no reason.

    Parameters
    ----------
    home
        What paths through a link that led here begin with.
    elsewhere
        Whether its interpreter is another environment's: then vLLM is that one's too.
    """
    if not words:
        return ""
    if os.fsencode(words[0]).startswith((*names.typed_inside, home)):
        return f"was started as {words[0]}"
    if words[0].startswith(_SERVER_TITLE):
        return "" if elsewhere else "is a part of a vLLM server"
    if not is_python(words[0]):
        return ""
    rest = script(words)
    if os.fsencode(rest).startswith(names.typed_inside + names.inside):
        return f"runs {rest}"
    if not elsewhere and (rest == "vllm" or rest.startswith("vllm.")):
        return f"runs the module {rest}"
    return ""


def elsewhere(pid: int, own: int, programs: Programs, proc: Path) -> bool:
    """Say whether a process that may not be looked into runs another environment.

    Its first argument must be the whole path of a Python whose folder we can see, in an
    environment and not in ours, and it must see the mounts that we see: else the same
    path may lead elsewhere for it. A part of a server, which has a title in place of
    arguments, runs what its parent runs.

    Parameters
    ----------
    own
        A process of ours.
    programs
        Where our environment's programs are.
    """
    started = pid
    words = processes.cmdline(pid, proc)
    while words and words[0].startswith(_SERVER_TITLE):
        facts = processes.stat(started, proc)
        started = facts.parent if facts else 0
        words = processes.cmdline(started, proc)
    if not words or not words[0].startswith("/") or not is_python(words[0]):
        return False
    try:
        seen = {
            processes.read(f"{proc}/{one}/mountinfo") for one in (pid, started, own)
        }
    except OSError:
        return False
    folder = os.path.dirname(words[0])
    where = identity(Path(folder))
    # not abspath: what follows a link must be resolved by the kernel
    marked = os.path.isfile(f"{folder}/../pyvenv.cfg")
    known = where is not None and where not in (programs.bin, programs.linked)
    return len(seen) == 1 and b"" not in seen and known and marked


def script(words: Sequence[str]) -> str:
    """Return the script or module that a Python command line names, or ""."""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "")
        if word == "-c":
            return ""
        if word in ("-W", "-X"):
            next(rest, "")
        elif not word.startswith("-"):
            return word
    return ""


def command(pid: int, proc: Path = processes.PROC) -> str:
    """Return the command line on one line, secrets and control characters masked."""
    words = processes.cmdline(pid, proc)
    if not words:
        return f"[{processes.name(pid, proc) or '?'}]"
    return one_line(" ".join(redact.argv(words)))


def one_line(text: str) -> str:
    """Return text that cannot move the cursor of a terminal."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def identity(path: bytes | Path) -> tuple[int, int] | None:
    """Return device and inode of a path as stat(2) tells them, or None."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_dev, info.st_ino)


def _folder_of(pid: int, program: str, proc: Path) -> bytes | None:
    """Return the folder a program was started from, as a path that we can open."""
    here = os.fsencode(f"{proc}/{pid}")
    folder, slash, name = os.fsencode(program).rpartition(b"/")
    if program.startswith("/"):
        return here + b"/root" + folder
    if slash:
        return here + b"/cwd/" + folder
    if name:
        path = os.fsencode(processes.variable(pid, "PATH", proc))
        for entry in path.split(b":"):
            found = here + b"/root" + entry
            if entry.startswith(b"/") and os.path.lexists(found + b"/" + name):
                return found
    return None
