# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which GPU code a library holds, as ``cuobjdump`` lists it.

A cubin is machine code for one architecture; PTX is text that the driver compiles at
load, which takes minutes and fails on a driver that is older than the compiler. So only
a cubin proves that a library runs on a card.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base import run
from tools.rig.host import elf

FATBIN_SECTION = ".nv_fatbin"
"""nvcc puts device code for the host's linker into a section of this name."""

# the letter marks code for that very chip or family (sm_90a, sm_100f)
_ELF = re.compile(r"^ELF file\s+\d+: .*\.sm_(\d+)[a-z]?\.cubin$")
_PTX = re.compile(r"^PTX file\s+\d+: .*\.sm_(\d+)[a-z]?\.ptx$")
_NONE = re.compile(
    r"^cuobjdump info\s*: (?:File '.*' does not contain device code"
    r"|No (?:ELF|PTX) file found to extract from '.*'\..*)$"
)


@dataclass(frozen=True)
class Content:
    """GPU code in one library.

    ``sass`` are the sm numbers that have cubins, ``cubins`` how many there are in all,
    ``ptx`` the sm numbers that PTX was made for. ``problem`` says why the others mean
    nothing; it is empty when the listing could be trusted.
    """

    sass: tuple[int, ...] = ()
    cubins: int = 0
    ptx: tuple[int, ...] = ()
    problem: str = ""

    @property
    def empty(self) -> bool:
        """Whether the library is known to hold no GPU code at all."""
        return not (self.problem or self.sass or self.ptx)


def read(library: Path, cuobjdump: Path, timeout: float = 300) -> Content:
    """List the GPU code in a library.

    Parameters
    ----------
    library
        A shared library.
    cuobjdump
        The tool, of a toolkit that knows the architectures in question.
    timeout
        Seconds for each of the two listings; one of 200 MB takes about one.

    Notes
    -----
    cuobjdump 12.4 says "does not contain device code" of a file that was cut short or
    is no ELF file, with the same exit status 255 as for a good library without GPU code
    (measured). So the file is read first, and an answer "none" is not believed where a
    section for GPU code is there.
    """
    try:
        image = elf.read(library)
    except elf.ElfProblem as exc:
        return Content(problem=str(exc))
    cubins, problem = _list(cuobjdump, "--list-elf", library, _ELF, timeout)
    if problem:
        return Content(problem=problem)
    ptx, problem = _list(cuobjdump, "--list-ptx", library, _PTX, timeout)
    if problem:
        return Content(problem=problem)
    if not cubins and not ptx and FATBIN_SECTION in image.sections:
        return Content(problem=f"cuobjdump finds nothing in its {FATBIN_SECTION}")
    return Content(tuple(sorted(set(cubins))), len(cubins), tuple(sorted(set(ptx))))


def _list(
    cuobjdump: Path, flag: str, library: Path, line: re.Pattern[str], timeout: float
) -> tuple[list[int], str]:
    """Return the sm number of each listed file, or why the list cannot be trusted."""
    result = run.run([cuobjdump, flag, library], timeout=timeout)
    said = [text for text in (result.out + "\n" + result.err).splitlines() if text]
    if result.timed_out:
        return [], f"cuobjdump {flag} did not answer within {timeout:.0f} s"
    found = [int(m[1]) for m in map(line.match, said) if m]
    if found and result.code == 0:
        odd = [s for s in said if not line.match(s)]
        return (found, "") if not odd else ([], _failure(flag, result.code, odd))
    if not found and said and all(_NONE.match(s) for s in said):
        return [], ""
    return [], _failure(flag, result.code, said)


def _failure(flag: str, code: int, said: list[str]) -> str:
    if code == 127:
        return f"cuobjdump cannot be started: {said[-1] if said else 'not found'}"
    last = said[-1] if said else "nothing"
    return f"cuobjdump {flag} ended with status {code} and said: {last[:200]}"
