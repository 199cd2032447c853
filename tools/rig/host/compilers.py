# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Host C++ compilers, and which of them a CUDA toolkit accepts.

nvcc compares only the major version (``crt/host_config.h``), so gcc 11.4 passes where
11 is the ceiling.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.run import run
from tools.rig.host import compat

PROBE_S = 10.0
"""Seconds that a compiler may take to say what it is."""

_CXX20_FROM = {"gcc": 10, "clang": 10}
"""First major version whose C++20 is good enough for nvcc's ``-std=c++20`` (GCC and
LLVM status pages).
"""

_NAMES = ("g++", "c++", "clang++")
_VERSIONED = re.compile(r"^(?:g\+\+|clang\+\+)-\d+$")
# a compiler's name that leads to one of these would go through the cache twice
_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})
_CCBIN = re.compile(
    r"""(?:^|\s)(?:-ccbin|--compiler-bindir)(?:=|\s+)("[^"]*"|'[^']*'|\S+)"""
)


@dataclass(frozen=True)
class Choice:
    """The host compiler that the user has named; ``path`` is None for none there."""

    variable: str
    value: str
    path: Path | None


@dataclass(frozen=True)
class HostCompiler:
    """One C++ compiler; ``family`` is ``gcc``, ``clang`` or empty when unknown.

    ``library`` is the major version of the gcc whose C++ library a clang takes.
    """

    path: Path
    family: str
    version: str
    problem: str = ""
    library: int | None = None

    @property
    def major(self) -> int | None:
        """Major version, or None when unknown."""
        head = self.version.split(".")[0]
        return int(head) if head.isdigit() else None

    def describe(self) -> str:
        """Return one line: family, version, place."""
        if self.problem:
            return f"{self.path}: {self.problem}"
        name = {"gcc": "g++", "clang": "clang++"}[self.family]
        return f"{name} {self.version} ({self.path})"


def probe(path: Path, *, timeout: float = PROBE_S) -> HostCompiler:
    """Ask a compiler what it is by preprocessing its own version macros.

    Its ``--version`` text is free form and translated; the macros are neither.
    """
    source = "__clang_major__ __clang_minor__\n__GNUC__ __GNUC_MINOR__\n"
    answer = run(
        [path, "-E", "-P", "-x", "c++", "-"], input_text=source, timeout=timeout
    )
    if answer.timed_out:
        return HostCompiler(path, "", "", f"did not answer within {timeout:.0f} s")
    if not answer.ok:
        return HostCompiler(path, "", "", f"does not run (status {answer.code})")
    lines = [line.split() for line in answer.out.splitlines() if line.strip()]
    for family, words in zip(("clang", "gcc"), lines, strict=False):
        if len(words) == 2 and all(w.isdigit() for w in words):
            library = newest_gcc() if family == "clang" else None
            return HostCompiler(path, family, ".".join(words), library=library)
    return HostCompiler(path, "", "", "does not say its version")


def newest_gcc(folder: Path = Path("/usr/lib/gcc")) -> int | None:
    """Return the newest gcc that is installed, whose C++ library clang takes.

    The rule stands in clang's manual (``--gcc-install-dir``).
    """
    majors = [int(p.name) for p in folder.glob("*/*") if p.name.isdigit()]
    return max(majors, default=None)


def user_choice(env: Mapping[str, str]) -> Choice | None:
    """Return the host compiler that the user wants nvcc to use, or None.

    ``NVCC_CCBIN`` is new in late 12.x; before it, people put ``-ccbin`` into
    ``NVCC_PREPEND_FLAGS``, and CMake reads ``CUDAHOSTCXX``. nvcc takes a program or the
    folder that it lies in.
    """
    named = []
    for variable in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        found = _CCBIN.findall(env.get(variable, ""))
        named += [(variable, found[-1].strip("\"'"))] if found else []
    named += [(v, env[v]) for v in ("NVCC_CCBIN", "CUDAHOSTCXX") if env.get(v)]
    for variable, value in named:
        path = Path(value) / "g++" if os.path.isdir(value) else Path(value)
        found = shutil.which(path, path=env.get("PATH", os.defpath))
        return Choice(variable, value, Path(found).absolute() if found else None)
    return None


def find(env: Mapping[str, str]) -> list[HostCompiler]:
    """Return every C++ compiler: the user's choice, ``CXX``, then the names on PATH.

    Versioned names (``g++-11``) follow the plain ones, newest first.
    """
    seen: set[Path] = set()
    found = []
    for path in _candidates(env):
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            found.append(probe(path))
    return found


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    chosen = user_choice(env)
    if chosen and chosen.path:
        yield chosen.path
    search = env.get("PATH", os.defpath)
    for word in (env.get("CXX", ""), *_words(env.get("CXX", ""))):
        given = shutil.which(word, path=search) if word else None
        if given and not _is_launcher(Path(given)):
            yield Path(given).absolute()
            break
    versioned: list[Path] = []
    for folder in (Path(d).absolute() for d in search.split(os.pathsep) if d):
        for name in _NAMES:
            if os.access(folder / name, os.X_OK) and not _is_launcher(folder / name):
                yield folder / name
        try:
            numbered = [p for p in folder.iterdir() if _VERSIONED.match(p.name)]
        except OSError:
            continue
        versioned += [p for p in numbered if not _is_launcher(p)]
    yield from sorted(versioned, key=_number, reverse=True)


def _is_launcher(path: Path) -> bool:
    return path.resolve().name in _LAUNCHERS


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def refusal(release: str, compiler: HostCompiler, cxx: int) -> str:
    """Say why a toolkit of `release` refuses `compiler`, or return an empty string.

    Parameters
    ----------
    release
        The toolkit's version, like ``12.4``.
    compiler
        The compiler in question.
    cxx
        The C++ standard that the target asks for, like 20.

    Notes
    -----
    Ceilings are those of ``crt/host_config.h`` (see ``data/compatibility.json``).
    """
    if compiler.problem or compiler.major is None:
        return compiler.problem or "version unknown"
    if compiler.family == "gcc":
        ceiling = compat.gcc_max(release)
    else:
        ceiling = compat.clang_max(release)
    if ceiling is None:
        return f"no facts about CUDA {release}"
    if compiler.major > ceiling:
        return f"CUDA {release} takes {compiler.family} up to {ceiling}"
    library, newest = compiler.library, compat.gcc_max(release)
    if library is not None and newest is not None and library > newest:
        return (
            f"it takes the C++ library of gcc {library}, CUDA {release} up to {newest}"
        )
    if cxx >= 20 and compiler.major < _CXX20_FROM[compiler.family]:
        return f"{compiler.family} {compiler.major} lacks C++{cxx}"
    return ""


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
