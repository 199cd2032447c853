# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finds known texts wherever they stand, also where they were escaped or encoded.

A password is written in many ways: as it is, in a URL, inside JSON inside JSON, in
base64 behind ``Authorization: Basic``, broken over two lines. All of them are searched
for at once, in time that grows with the length of the text and with nothing else.
"""

from __future__ import annotations

import base64
import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote_plus

import regex as re
from ahocorasick_rs import AhoCorasick

WRAPPED = 16
"""Characters from which on a text is looked for across the ends of lines, too."""

_LEAST = 5
"""Letters that must be left of a text that was unescaped."""

_REACH = 4096
"""Characters of an encoded text that belong to what was found inside it."""

_ESCAPED = (
    r"\\+(?:u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|(?P<c>[^\w\s])|)"
    r"|%(?:25){0,8}(?P<p>[0-9a-fA-F]{2})"
    r"|&(?:#(?P<d>[0-9]{2,5})|#x(?P<h>[0-9a-fA-F]{2,4})|(?P<e>amp|lt|gt|quot|apos));"
    r"|\x1b\[[0-9;?]*[A-Za-z]|\u200b"
)
_ESCAPE = re.compile(_ESCAPED)
_ESCAPE_OR_BREAK = re.compile(rf"\\*+\r?\n\s*|\\++(?:r\\*+)?n|{_ESCAPED}")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ENCODED = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
)


@dataclass(frozen=True)
class Literal:
    """A text to be found.

    ``tag`` comes back with each place. A ``whole`` one is found only where no letter or
    digit touches it. ``coded`` says that it also stands in base64 or hexadecimal.
    """

    text: str
    tag: str
    whole: bool = False
    coded: bool = False


@dataclass(frozen=True)
class Place:
    """Where a literal stands: characters from ``start`` up to ``end``."""

    start: int
    end: int
    tag: str


class Literals:
    """A search for many literals at once."""

    def __init__(self, literals: Iterable[Literal]) -> None:
        once = list(dict.fromkeys(literals))
        self._plain = _Search(
            (form, one, False) for one in once for form in _forms(one.text)
        )
        self._coded = _Search(
            (code, one, True) for one in once if one.coded for code in _codes(one.text)
        )
        self._bare = _Search(
            (form, one, False) for one in once for form in _bare(one.text, _ESCAPE)
        )
        self._long = _Search(
            (form, one, False)
            for one in once
            if len(one.text) >= WRAPPED
            for form in _bare(one.text, _ESCAPE_OR_BREAK)
        )

    def places(self, text: str) -> list[Place]:
        """Return where literals stand; places are in order and do not overlap."""
        found = [*self._plain.find(text), *self._coded.find(text)]
        for search, pattern in ((self._bare, _ESCAPE), (self._long, _ESCAPE_OR_BREAK)):
            view = _View.of(text, pattern) if search else None
            if view is not None:
                found += [view.back(place) for place in search.find(view.text)]
        return list(_merged(found))


class _Search:
    """Texts, each with the literal that it stands for."""

    def __init__(self, entries: Iterable[tuple[str, Literal, bool]]) -> None:
        self._entries = [entry for entry in dict.fromkeys(entries) if entry[0]]
        self._find = (
            AhoCorasick([text for text, _, _ in self._entries])
            if self._entries
            else None
        )

    def __bool__(self) -> bool:
        return self._find is not None

    def find(self, text: str) -> list[Place]:
        if self._find is None:
            return []
        found: list[Place] = []
        reached = 0
        hits = self._find.find_matches_as_indexes(text, overlapping=True)
        for which, start, end in hits:
            _, literal, coded = self._entries[which]
            if literal.whole and not coded and _touched(text, start, end):
                continue
            if coded:
                if start < reached:
                    continue
                start, end = _run(text, start, end)
                reached = end
            found.append(Place(start, end, literal.tag))
        return found


class _View:
    """A text with parts of it replaced, and the way back to the original.

    Stretches begin at ``here`` in the view and at ``there`` in the original; one with a
    width is a single letter of the view that takes so many of the original.
    """

    def __init__(self) -> None:
        self.text = ""
        self._here, self._there, self._width = [0], [0], [0]

    @classmethod
    def of(cls, text: str, pattern: re.Pattern[str]) -> _View | None:
        """Return the view in which every match is decoded, None without a match."""
        view = cls()
        pieces: list[str] = []
        known: dict[str, str] = {}
        length = last = 0
        for match in pattern.finditer(text):
            start, end = match.span()
            code = match.group()
            decoded = known.get(code)
            if decoded is None:
                decoded = known[code] = _decoded(match)
            pieces += (text[last:start], decoded)
            length += start - last
            if decoded:
                view._here.append(length)
                view._there.append(start)
                view._width.append(end - start)
                length += 1
            view._here.append(length)
            view._there.append(end)
            view._width.append(0)
            last = end
        if not pieces:
            return None
        view.text = "".join([*pieces, text[last:]])
        return view

    def back(self, place: Place) -> Place:
        """Return the place in the original."""
        first, _ = self._span(place.start)
        _, last = self._span(place.end - 1)
        return Place(first, last, place.tag)

    def _span(self, position: int) -> tuple[int, int]:
        at = bisect.bisect_right(self._here, position) - 1
        start = self._there[at] + position - self._here[at]
        return start, start + (self._width[at] or 1)


def _decoded(match: re.Match[str]) -> str:
    code = match["u"] or match["x"] or match["p"] or match["h"]
    number = int(code, 16) if code else int(match["d"] or 0)
    if number:
        # in what was unescaped no backslash is left, however it was written
        return "" if number == 0x5C or number >= 0xD800 else chr(number)
    return _ENTITIES.get(match["e"] or "", match["c"] or "")


def _codes(text: str) -> Iterator[str]:
    """Yield how a text looks inside base64, wherever it begins there, and in hex."""
    raw = text.encode("utf-8", "surrogateescape")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode()
        # letters at both ends depend on the neighbours as well
        first = (before * 8 + 5) // 6
        last = (before + len(raw)) * 8 // 6
        core = whole[first:last]
        if len(core) >= 7:
            yield core
            yield core.replace("+", "-").replace("/", "_")
    if len(raw) >= 6:
        yield raw.hex()
        yield raw.hex().upper()


def _bare(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield what a view may show of a text, which may hold what looks escaped."""
    # in what was unescaped no backslash is left
    yield text.replace("\\", "")
    seen = _View.of(text, pattern)
    if seen is not None and len(seen.text) >= _LEAST:
        yield seen.text


def _forms(text: str) -> Iterator[str]:
    """Yield how a text looks as it is, in a query, and in a shell's quotes."""
    yield text
    yield quote_plus(text, errors="replace")
    yield text.replace("'", "'\"'\"'")


def _touched(text: str, start: int, end: int) -> bool:
    before = start > 0 and text[start - 1].isalnum()
    after = end < len(text) and text[end].isalnum()
    return before or after


def _run(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the whole encoded text around a part of it."""
    first = max(0, start - _REACH)
    while start > first and text[start - 1] in _ENCODED:
        start -= 1
    last = min(len(text), end + _REACH)
    while end < last and text[end] in _ENCODED:
        end += 1
    return start, end


def _merged(places: list[Place]) -> Iterator[Place]:
    """Yield places in order; of those that overlap, one that covers all of them."""
    current: Place | None = None
    for place in sorted(places, key=lambda p: (p.start, -p.end)):
        if current is None or place.start >= current.end:
            if current is not None:
                yield current
            current = place
        elif place.end > current.end:
            current = Place(current.start, place.end, current.tag)
    if current is not None:
        yield current
