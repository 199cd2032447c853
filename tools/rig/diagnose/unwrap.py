# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lines that a terminal broke at its width, in the middle of words, made whole again.

What was copied out of a terminal, or logged through one, has lines that are all exactly
as wide as it was. Prefixes stand on the first part only, so this works on raw lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex as re

from tools.rig.diagnose.clean import Line, clean, unpainted, unprefixed

NARROWEST, WIDEST = 40, 400
"""Columns of terminals; a log whose longest line is longer was not broken by one."""

PARTS = 16
"""Parts of one line that are joined at most."""

_BEGINS = re.compile(
    r"(?:ERROR|WARNING|INFO|DEBUG): |Traceback \(most|During handling of|The above exc"
    r"|\$ "
)
"""What a line begins with that does not go on from another one: the longest line of a
log looks as if a terminal had broken it there."""


@dataclass(frozen=True)
class Whole:
    """A line made whole: cleaned, and how long its parts were."""

    line: Line
    parts: tuple[int, ...]

    def held(self, start: int, end: int) -> dict[int, int]:
        """Return how much of a stretch of text each raw line holds, by number."""
        begin = len(self.line.text) - sum(self.parts)
        held = {}
        for place, length in enumerate(self.parts):
            here = min(end, begin + length) - max(start, begin)
            if here > 0:
                held[self.line.number + place] = here
            begin += length
        return held or {self.line.number: 0}


def unwrapped(
    first: int, raws: Sequence[str], lines: Mapping[int, Line]
) -> list[list[Whole]]:
    """Return all lines with the broken ones made whole, in each way that they may be.

    Parameters
    ----------
    first
        The number of the first line.
    raws
        Neighbouring lines as they were read.
    lines
        The same, cleaned, by number.
    """
    bare = [unpainted(raw.rstrip("\r\n")) for raw in raws]
    readings = [bare]
    # or it was broken first, and then a collector put a prefix before each part
    inner = [unprefixed(text) for text in bare]
    if all(len(text) < len(whole) for text, whole in zip(inner, bare, strict=True)):
        readings.append(inner)
    return [wholes for texts in readings if (wholes := _joined(first, texts, lines))]


def _joined(first: int, bare: Sequence[str], lines: Mapping[int, Line]) -> list[Whole]:
    width = max(map(len, bare), default=0)
    if not NARROWEST <= width <= WIDEST:
        return []
    out: list[Whole] = []
    start = 0
    while start < len(bare):
        end = start
        # a blank at the break is lost when the text is copied
        while (
            end + 1 < len(bare)
            and len(bare[end]) >= width - 1
            and end - start < PARTS - 1
            and not _BEGINS.match(bare[end + 1])
        ):
            end += 1
        number = first + start
        if start == end:
            if number in lines:
                out.append(Whole(lines[number], (len(bare[start]),)))
        else:
            parts = [
                part + " " if len(part) == width - 1 else part
                for part in bare[start:end]
            ] + [bare[end]]
            lengths = tuple(map(len, parts))
            out += [Whole(one, lengths) for one in clean(number, "".join(parts))[-1:]]
        start = end + 1
    return out if any(len(whole.parts) > 1 for whole in out) else []
