# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The few lines of a large log that are worth a look, with their neighbours.

All literals of the catalogue are searched at once in whole blocks of bytes, so that a
log of a gigabyte costs seconds. What is kept is bounded: a line that repeats a million
times is kept only as often as it can still say something new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import regex as re
from ahocorasick_rs import AhoCorasick, BytesAhoCorasick

from tools.rig.diagnose import foreign
from tools.rig.diagnose.entries import FARTHEST

OFTEN = 16
"""Places that are kept of one literal; the end of the log is kept in any case."""

OFTEN_SIGNALS = 64
"""The same for words that only make a line suspicious; fewer neighbours are kept."""

ENDS = 400
"""Lines of the beginning and of the end of a log that are kept in any case."""

MOST = 20_000
"""Lines that are kept of one log before only what is rare is kept, at most as many
again."""

RARE = 2
"""Places of one literal that are kept even then."""

SIGNALS = (
    "error",
    "fatal",
    "failed",
    "failure",
    "killed",
    "traceback",
    "exception",
    "cannot",
    "could not",
    "unable to",
    "no such",
    "not found",
    "denied",
    "warning",
    "abort",
    "core dumped",
    "panicked",
    *foreign.SIGNALS,
)
"""Words that make a line worth keeping though no entry may know it."""

_SIGNAL_NEIGHBOURS = 12
_PAINT = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x00")


@dataclass(frozen=True)
class Excerpt:
    """Stretches of raw lines, each with the number of its first line, from 1.

    ``lines`` is how many the whole log has.
    """

    stretches: list[tuple[int, list[str]]]
    lines: int


class Finder:
    """Finds which of many literals stand in a text.

    Parameters
    ----------
    needles
        Lower-case literals.
    """

    def __init__(self, needles: Iterable[str]) -> None:
        self.needles = sorted(set(needles))
        self._text = AhoCorasick(self.needles)
        self._wanted = [*self.needles, *(s for s in SIGNALS if s not in self.needles)]
        self._bytes = BytesAhoCorasick([w.encode() for w in self._wanted])

    def found_in(self, text: str) -> set[str]:
        """Return the literals of a text."""
        hits = self._text.find_matches_as_indexes(text.lower(), overlapping=True)
        return {self.needles[hit[0]] for hit in hits}

    def excerpt(self, blocks: Iterable[bytes]) -> Excerpt:
        """Return what is worth a look of a log that comes in blocks of whole lines."""
        taker = _Taker()
        counts = [0] * len(self._wanted)
        known = len(self.needles)
        for block in blocks:
            if b"\x1b" in block or b"\x00" in block:
                block = _PAINT.sub(b"", block)
            reach: list[tuple[int, int]] = []
            line, at, last = 0, 0, (-1, -1)
            hits = self._bytes.find_matches_as_indexes(block.lower(), overlapping=True)
            for which, start, _ in hits:
                often = OFTEN if which < known else OFTEN_SIGNALS
                if counts[which] >= (RARE if taker.full else often):
                    continue
                line += block.count(b"\n", at, start)
                at = max(at, start)
                counts[which] += 1
                if (which, line) == last:
                    continue
                last = (which, line)
                far = FARTHEST if which < known else _SIGNAL_NEIGHBOURS
                reach.append((line - far, line + far))
            taker.take(block, reach)
        return taker.done()


class _Taker:
    """Keeps lines by number, across blocks."""

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}
        self._before: deque[bytes] = deque(maxlen=ENDS)
        self._first = 0
        self._until = ENDS
        self._broken = False

    @property
    def full(self) -> bool:
        """Whether only what is rare is worth keeping from now on."""
        return len(self._kept) >= MOST

    def take(self, block: bytes, reach: list[tuple[int, int]]) -> None:
        """Keep the lines of a block that are within reach; numbers count in it."""
        first = self._first
        ends = block.count(b"\n")
        whole = block.endswith(b"\n")
        if self._broken and self._before:
            # the rest of a very long line: its beginning is what is looked at
            self._before.pop()
        count = ends if whole else ends + 1
        wanted = [(max(a, -len(self._before)), b) for a, b in reach]
        if wanted or first < self._until or count <= 2 * ENDS:
            lines = block.split(b"\n")
            if whole:
                lines.pop()
            self._keep(first, lines, wanted)
            self._before.extend(lines[-ENDS:])
        else:
            tail = block.rsplit(b"\n", ENDS + 1)
            self._before.extend((tail[1:-1] if whole else tail[1:])[-ENDS:])
        self._first += ends
        self._broken = not whole

    def _keep(
        self, first: int, lines: list[bytes], wanted: list[tuple[int, int]]
    ) -> None:
        before = list(self._before)
        for number in range(first, min(self._until, first + len(lines))):
            self._kept.setdefault(number, lines[number - first])
        for start, end in wanted:
            if len(self._kept) >= 2 * MOST:
                return
            for offset in range(start, min(end, len(lines) - 1) + 1):
                line = lines[offset] if offset >= 0 else before[offset]
                self._kept.setdefault(first + offset, line)
            if end >= len(lines):
                self._until = max(self._until, first + end + 1)

    def done(self) -> Excerpt:
        """Return what was kept, the end of the log included."""
        # a log that does not end with a line's end has one line more than ends
        total = self._first + (1 if self._broken else 0)
        for back, line in enumerate(reversed(self._before), 1):
            self._kept.setdefault(total - back, line)
        return Excerpt(list(_stretches(self._kept)), total)


def _stretches(kept: dict[int, bytes]) -> Iterator[tuple[int, list[str]]]:
    start, run = 0, list[str]()
    for number in sorted(kept):
        if run and number != start + len(run):
            yield start + 1, run
            run = []
        if not run:
            start = number
        run.append(kept[number].decode("utf-8", "replace"))
    if run:
        yield start + 1, run
