# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the entries of the catalogue match in a log."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import regex as re

from tools.rig.diagnose.clean import Line, clean
from tools.rig.diagnose.entries import Context, Entry, Match
from tools.rig.diagnose.excerpt import Excerpt, Finder
from tools.rig.diagnose.outcomes import SUCCESS_NEEDLES
from tools.rig.diagnose.unwrap import Whole, unwrapped

PATIENCE = 0.25
"""Seconds that one pattern may take on one line; it is passed over then."""

JOINED = 6
"""Lines that are joined at most to undo a terminal's or a program's wrapping."""

_NARROW = 58
"""Columns: a shorter line is not full, so the next one does not go on from it."""

REPEATS = 64
"""Matches of one entry that are kept."""


@dataclass(frozen=True)
class Hit:
    """One entry's match.

    ``line`` is the cleaned decisive line; ``groups`` are the named groups of the
    pattern, for filling in words; ``numbers`` are all lines that the match touches.
    """

    entry: Entry
    line: Line
    groups: Mapping[str, str]
    numbers: frozenset[int]


@dataclass(frozen=True)
class Read:
    """A log as the matcher saw it: all cleaned lines that were kept, and the matches.

    ``total`` is the number of lines of the whole log.
    """

    lines: tuple[Line, ...]
    hits: tuple[Hit, ...]
    total: int


class Matcher:
    """Matches a catalogue against logs.

    Parameters
    ----------
    entries
        The catalogue.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._by_needle: dict[str, list[tuple[Entry, Match]]] = defaultdict(list)
        needles: set[str] = set(SUCCESS_NEEDLES)
        for entry in entries:
            for match in entry.matches:
                for needle in match.needles:
                    self._by_needle[needle].append((entry, match))
                needles.update(match.needles)
                for context in (*match.needs, *match.unless):
                    needles.update(context.needles)
        self.finder = Finder(needles)

    def read(self, blocks: Iterable[bytes]) -> Read:
        """Read a log that comes in blocks of whole lines."""
        return self.match(self.finder.excerpt(blocks))

    def match(self, excerpt: Excerpt) -> Read:
        """Return where the entries match in what was kept of a log."""
        stretches = [
            _Stretch([c for n, raw in enumerate(raws, first) for c in clean(n, raw)])
            for first, raws in excerpt.stretches
        ]
        log = _Log(stretches)
        often: dict[str, int] = defaultdict(int)
        hits: list[Hit] = []
        for stretch, (first, raws) in zip(stretches, excerpt.stretches, strict=True):
            found = list(self._in_stretch(stretch, log, often))
            by_number = {line.number: line for line in stretch.lines}
            for wholes in unwrapped(first, raws, by_number):
                found = _merged(found, list(self._in_whole(wholes, log)))
            hits += found
        lines = tuple(line for stretch in stretches for line in stretch.lines)
        hits.sort(key=lambda hit: hit.line.number)
        return Read(lines, tuple(hits), excerpt.lines)

    def _in_stretch(
        self,
        stretch: _Stretch,
        log: _Log,
        often: dict[str, int],
        indexes: Iterable[int] | None = None,
    ) -> Iterator[Hit]:
        seen: set[tuple[str, int]] = set()
        for index in range(len(stretch.lines)) if indexes is None else indexes:
            for text, parts in stretch.readings(index):
                for entry, match in self._worth(text):
                    if often[entry.id] >= REPEATS:
                        continue
                    found = _search(match.pattern, text)
                    if found is None:
                        continue
                    where = _decisive(found.span(), parts)
                    if any((entry.id, part) in seen for _, part in parts):
                        continue
                    if not _in_context(match, stretch, where, log):
                        continue
                    seen.add((entry.id, where))
                    often[entry.id] += 1
                    touched = frozenset(
                        stretch.lines[part].number
                        for part in _touched(found.span(), parts)
                    )
                    groups = {k: v for k, v in found.groupdict().items() if v}
                    yield Hit(entry, stretch.lines[where], groups, touched)

    def _in_whole(self, wholes: Sequence[Whole], log: _Log) -> Iterator[Hit]:
        """Yield what matches where lines that a terminal broke are whole again."""
        stretch = _Stretch([whole.line for whole in wholes])
        by_line = {id(whole.line): whole for whole in wholes}
        broken = [index for index, whole in enumerate(wholes) if len(whole.parts) > 1]
        near = {i for b in broken for i in range(max(0, b - JOINED + 1), b + 1)}
        for hit in self._in_stretch(stretch, log, defaultdict(int), sorted(near)):
            decisive, touched = _parts(by_line[id(hit.line)], hit.entry)
            line = replace(hit.line, number=decisive)
            yield replace(hit, line=line, numbers=touched)

    def _worth(self, text: str) -> list[tuple[Entry, Match]]:
        worth: dict[int, tuple[Entry, Match]] = {}
        for needle in sorted(self.finder.found_in(text)):
            for pair in self._by_needle.get(needle, ()):
                worth[id(pair[1])] = pair
        return list(worth.values())


@dataclass
class _Stretch:
    """Neighbouring lines."""

    lines: list[Line]

    def readings(self, index: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yield a line as it is, then joined with those that go on from it.

        With each text come the offsets at which lines begin in it, and their indexes.
        """
        first = self.lines[index]
        yield first.text, [(0, index)]
        parts = [index]
        last = index
        for follower in range(index + 1, min(index + 4 * JOINED, len(self.lines))):
            line = self.lines[follower]
            if line.source != first.source and (line.source or follower > last + 1):
                # another process wrote between two lines of this one; only the rest
                # of a broken line has no prefix at all
                continue
            last = follower
            before = self.lines[parts[-1]]
            goes_on = line.indent > 0 or before.width >= _NARROW
            if not line.text or not goes_on or len(parts) == JOINED:
                break
            parts.append(follower)
        if len(parts) == 1:
            return
        yield self._joined(parts)

    def _joined(self, parts: list[int]) -> tuple[str, list[tuple[int, int]]]:
        text, places = "", list[tuple[int, int]]()
        for part in parts:
            if text:
                text += " "
            places.append((len(text), part))
            text += self.lines[part].text
        return text, places

    def with_any(self, needles: Iterable[str]) -> Iterator[str]:
        """Yield lines that hold a literal, alone and with what may go on from them."""
        texts = ["", *self.whole, ""]
        for index, low in enumerate(self.lowered, 1):
            if any(needle in low for needle in needles):
                before, one, after = texts[index - 1 : index + 2]
                yield from (one, f"{one} {after}", f"{one}{after}")
                yield from (f"{before} {one}", f"{before}{one}")

    @functools.cached_property
    def lowered(self) -> list[str]:
        """Every line's text in lower case."""
        return [text.lower() for text in self.whole]

    @functools.cached_property
    def whole(self) -> list[str]:
        """Every line's text."""
        return [line.text for line in self.lines]


@dataclass(frozen=True)
class _Log:
    stretches: list[_Stretch]

    def anywhere(self, context: Context) -> bool:
        """Whether the context matches on any line that was kept."""
        return any(
            _search(context.pattern, text) is not None
            for stretch in self.stretches
            for text in stretch.with_any(context.needles)
        )


def _merged(found: list[Hit], better: list[Hit]) -> list[Hit]:
    """Add what whole lines say, and drop what only a part of one seemed to say."""
    names = {hit.entry.id for hit in better}
    across = {n for hit in better if len(hit.numbers) > 1 for n in hit.numbers}
    kept = [h for h in found if h.entry.id in names or not h.numbers <= across]
    known = {hit.entry.id for hit in kept}
    for hit in better:
        if hit.entry.id not in known:
            known.add(hit.entry.id)
            kept.append(hit)
    return kept


def _parts(whole: Whole, entry: Entry) -> tuple[int, frozenset[int]]:
    """Return the part of a broken line in which an entry matches, and all touched."""
    for match in entry.matches:
        found = _search(match.pattern, whole.line.text)
        if found is not None:
            held = whole.held(*found.span())
            return max(held, key=lambda number: (held[number], -number)), frozenset(
                held
            )
    return whole.line.number, frozenset({whole.line.number})


def _in_context(match: Match, stretch: _Stretch, index: int, log: _Log) -> bool:
    return all(_near(need, stretch, index, log) for need in match.needs) and not any(
        _near(bar, stretch, index, log) for bar in match.unless
    )


def _near(context: Context, stretch: _Stretch, index: int, log: _Log) -> bool:
    if context.where == "anywhere":
        return log.anywhere(context)
    start, end = max(0, index - context.span), index + context.span + 1
    if context.where == "before":
        end = index
    elif context.where == "after":
        start = index + 1
    texts = stretch.whole[start:end]
    if any(_search(context.pattern, text) is not None for text in texts):
        return True
    # it may be wrapped there
    return _search(context.pattern, " ".join(texts)) is not None


def _search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    try:
        return pattern.search(text, timeout=PATIENCE)
    except TimeoutError:
        return None


def _decisive(span: tuple[int, int], parts: list[tuple[int, int]]) -> int:
    """Return the index of the line that holds most of a match."""
    return -max((held, -place) for place, held in _overlaps(span, parts))[1]


def _touched(span: tuple[int, int], parts: list[tuple[int, int]]) -> list[int]:
    """Return the indexes of all lines that hold some of a match."""
    held = [place for place, held in _overlaps(span, parts) if held > 0]
    return held or [_decisive(span, parts)]


def _overlaps(
    span: tuple[int, int], parts: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    ends = [start for start, _ in parts[1:]] + [span[1] + 1]
    return [
        (place, min(span[1], end) - max(span[0], start))
        for (start, place), end in zip(parts, ends, strict=True)
    ]
