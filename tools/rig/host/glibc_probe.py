# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether nvcc can compile ``<math.h>``, asked of nvcc itself.

glibc 2.41 declares cospi and sinpi, glibc 2.42 also rsqrt, all ``noexcept``. CUDA
declares functions of the same names without an exception specification: up to 12.9 the
first two, up to 13.1 the third. So no toolkit that can target Volta is clean on
glibc 2.41 (measured with the headers of CUDA 11.8 to 13.5 on glibc 2.36, 2.41, 2.43).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import regex as re

from tools.rig.base.killed import was_killed
from tools.rig.base.run import Result, run

if TYPE_CHECKING:
    from tools.rig.host.compilers import HostCompiler
    from tools.rig.host.cuda import Toolkit

PROBE_S = 120.0
"""Seconds for one compile; it takes about one, and tens on a loaded network disk."""


@dataclass(frozen=True, order=True)
class Clash:
    """One function that CUDA and a system header declare differently.

    ``header`` and ``line`` say where the system's declaration stands.
    """

    name: str
    header: Path
    line: int


@dataclass(frozen=True)
class Probe:
    """What nvcc said about a file that only includes ``<math.h>``.

    ``clashing`` are exception-specification clashes. ``other`` is the rest of nvcc's
    output when it reports anything else that is wrong, else empty. ``killed`` says that
    it, or a part of it, was ended by signal 9, so that nothing is known.
    """

    ok: bool
    clashing: tuple[Clash, ...] = ()
    other: str = ""
    missing: bool = False
    timed_out: bool = False
    killed: bool = False


_CLASH = re.compile(
    r"^(?P<file>\S.*)\((?P<line>\d+)\): error(?: #[\w-]+)?: exception specification is "
    r"incompatible with that of previous function \"(?P<name>\w+)\""
    r"(?:\s*\(declared at line (?P<line2>\d+)(?: of (?P<file2>.+))?\))?\s*$"
)
_SUMMARY = re.compile(r"^\d+ errors? detected in the compilation of ")
_WRONG = re.compile(r"\b(?:error|fatal)\b", re.IGNORECASE)


def probe(
    toolkit: Toolkit,
    compiler: HostCompiler | None,
    env: Mapping[str, str],
    work: Path,
    *,
    timeout: float = PROBE_S,
) -> Probe:
    """Compile a file that only includes ``<math.h>``.

    Parameters
    ----------
    toolkit
        Its nvcc is asked.
    compiler
        The host compiler; None leaves the choice to nvcc and ``NVCC_CCBIN``.
    env
        The environment of the build: ``NVCC_PREPEND_FLAGS`` in it is in force.
    work
        A folder that exists and may be written.
    timeout
        Seconds.
    """
    source = work / "math_probe.cu"
    source.write_text("#include <math.h>\n", encoding="ascii")
    answer = _nvcc(
        toolkit,
        compiler,
        env,
        work,
        ["-c", source.name, "-o", "math_probe.o"],
        timeout=timeout,
    )
    if answer.ok:
        return Probe(True)
    text = answer.out + answer.err
    if was_killed(answer):
        # what it had said until then is no more than a part
        return Probe(False, other=text, killed=True)
    clashing, rest = parse(text)
    wrong = any(_WRONG.search(line) for line in rest)
    return Probe(
        False,
        clashing,
        "\n".join(rest) if wrong or not clashing else "",
        missing=answer.code == 127 and not answer.out,
        timed_out=answer.timed_out,
    )


def parse(text: str) -> tuple[tuple[Clash, ...], tuple[str, ...]]:
    """Split nvcc's output into clashes and all other lines.

    The compiler names both declarations; which of them comes first depends on the
    order of the includes, so the one that is not CUDA's is taken.

    Returns
    -------
    tuple
        The clashes, sorted and without repetition, and the remaining lines. The quoted
        source line and the caret below a clash belong to it, the count of errors to
        nobody.
    """
    clashing: set[Clash] = set()
    rest: list[str] = []
    quoting = False
    for line in text.splitlines():
        found = _CLASH.match(line)
        if found:
            clashing.add(_system_side(found))
            quoting = True
        elif quoting and line.startswith(" "):
            continue
        else:
            quoting = False
            if line.strip() and not _SUMMARY.match(line):
                rest.append(line)
    return tuple(sorted(clashing)), tuple(rest)


def include_dirs(
    toolkit: Toolkit,
    compiler: HostCompiler | None,
    env: Mapping[str, str],
    work: Path,
    *,
    timeout: float = PROBE_S,
) -> tuple[Path, ...]:
    """Return the folders that ``#include <...>`` searches under nvcc, in order.

    Empty when the host compiler does not say.
    """
    source = work / "empty_probe.cu"
    source.write_text("", encoding="ascii")
    answer = _nvcc(
        toolkit,
        compiler,
        env,
        work,
        ["-E", "-Xcompiler", "-v", source.name, "-o", "empty_probe.ii"],
        timeout=timeout,
    )
    return parse_include_dirs(answer.err + answer.out)


def parse_include_dirs(text: str) -> tuple[Path, ...]:
    """Read the search list that gcc and clang print with ``-v``."""
    found: list[Path] = []
    listing = False
    for line in text.splitlines():
        if line.startswith("#include <...>"):
            listing = True
        elif line.startswith("End of search list"):
            listing = False
        elif listing and line.startswith(" "):
            path = Path(line.strip())
            if path not in found:
                found.append(path)
    return tuple(found)


def relative_name(header: Path, dirs: tuple[Path, ...]) -> str | None:
    """Return how programs include `header`, like ``bits/mathcalls.h``.

    The deepest folder of the search list that holds it decides: Debian's list has both
    ``/usr/include`` and ``/usr/include/x86_64-linux-gnu``. None when none holds it.
    """
    real = os.path.realpath(header)
    names = []
    for folder in dirs:
        top = os.path.realpath(folder) + os.sep
        if real.startswith(top):
            names.append(real[len(top) :])
    return min(names, key=len) if names else None


def _nvcc(
    toolkit: Toolkit,
    compiler: HostCompiler | None,
    env: Mapping[str, str],
    work: Path,
    args: list[str],
    *,
    timeout: float,
) -> Result:
    host = ["-ccbin", os.fspath(compiler.path)] if compiler else []
    # relative names and a fixed language: the messages are read by a program
    spoken = {**env, "LC_ALL": "C", "LANGUAGE": ""}
    return run([toolkit.nvcc, *host, *args], env=spoken, cwd=work, timeout=timeout)


def _system_side(found: re.Match[str]) -> Clash:
    here = Path(found["file"]), int(found["line"])
    if found["line2"]:
        there = Path(found["file2"] or found["file"]), int(found["line2"])
        if _is_cuda(here[0]) and not _is_cuda(there[0]):
            return Clash(found["name"], *there)
    return Clash(found["name"], *here)


def _is_cuda(path: Path) -> bool:
    # a distribution's toolkit puts crt/ straight into /usr/include, so the root says
    # nothing
    return path.parent.name == "crt" or path.name.startswith("cuda")
