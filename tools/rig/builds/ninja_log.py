# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads ``.ninja_log`` of format 5, 6 and 7, which differ in the hash alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FORMATS = ("5", "6", "7")
_PLACES = ("build/temp*", "build/temp*/*", "*/build/temp*")


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


def of_checkout(checkout: Path) -> list[Step]:
    """Return the steps of all of a build's ninjas, one after the other.

    The target runs one for its own libraries and one for each extension that is made
    with torch's help; each counts its seconds from its own start. Of the folders of
    several Pythons the one that was built in last counts.
    """
    logs: dict[Path, Path] = {}
    found = [log for shape in _PLACES for log in checkout.glob(f"{shape}/.ninja_log")]
    for log in sorted(found, key=lambda log: log.stat().st_mtime):
        above = log.relative_to(checkout).parts
        logs[Path(*(part for part in above if not part.startswith("temp")))] = log
    return [step for log in logs.values() for step in read(log)]


def short(output: str, checkout: Path) -> str:
    """Return an output's name without the checkout's path in front."""
    return output.removeprefix(f"{checkout}/")
