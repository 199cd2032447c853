# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads ``.ninja_log`` of format 5, 6 and 7, which differ in the hash alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FORMATS = ("5", "6", "7")


@dataclass(frozen=True)
class Step:
    """One output of a build; times in seconds since ninja started."""

    output: str
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Wall time of the step."""
        return self.end_s - self.start_s


def read(file: Path) -> list[Step]:
    """Return the newest entry of each output in the order in which they ended.

    A file that is missing, cut short or of an unknown format gives what can be read of
    it, so that a report never fails a build.
    """
    try:
        # not splitlines: it also divides at characters that a file name may hold
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    head = lines[0].rpartition(" v")[2]
    if head not in _FORMATS:
        return []
    newest: dict[str, Step] = {}
    for line in lines[1:]:
        cells = line.split("\t")
        if len(cells) != 5 or not (cells[0].isdigit() and cells[1].isdigit()):
            continue
        newest.pop(cells[3], None)
        newest[cells[3]] = Step(cells[3], int(cells[0]) / 1000, int(cells[1]) / 1000)
    return sorted(newest.values(), key=lambda s: s.end_s)
