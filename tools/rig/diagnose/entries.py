# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The catalogue: one entry a failure, read from the data files beside this module."""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex as re

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("catalogue")

SPAN = 30
"""Lines before and after the decisive one in which context is looked for."""

FARTHEST = 60
"""The largest span that an entry may ask for: so many neighbours of a line are kept."""


class Phase(enum.IntEnum):
    """When a failure happens; a later success says that an earlier one was survived."""

    ENVIRONMENT = 0
    FETCH = 1
    CONFIGURE = 2
    COMPILE = 3
    LINK = 4
    INSTALL = 5
    IMPORT = 6
    SERVE = 7
    RUN = 8


class Role(str, enum.Enum):
    """What a line that an entry matches is in the story of the log."""

    CAUSE = "cause"
    CONSEQUENCE = "consequence"
    HARMLESS = "harmless"


@dataclass(frozen=True)
class Context:
    """A pattern that must, or must not, match near the decisive line.

    ``where`` is ``before``, ``after``, ``around`` or ``anywhere``; ``span`` is counted
    in lines.
    """

    text: str
    where: str = "around"
    span: int = SPAN
    needles: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, made when it is first needed: most never are."""
        return _compiled(self.text)


@dataclass(frozen=True)
class Match:
    """One shape of a failure.

    ``needles`` are lower-case literals, one of which stands on every line that
    ``pattern`` matches: a search for all of them at once finds the lines worth a look.
    """

    needles: tuple[str, ...]
    text: str
    needs: tuple[Context, ...] = ()
    unless: tuple[Context, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, made when it is first needed: most never are."""
        return _compiled(self.text)


@dataclass(frozen=True)
class Words:
    """What people read about an entry, in one language."""

    title: str
    cause: str
    fix: tuple[str, ...]
    check: str


@dataclass(frozen=True)
class Entry:
    """One failure, what follows from one, or a line that only looks like one.

    ``general`` entries are beaten by every specific one. A ``silent`` failure ends in
    no failure: success afterwards does not excuse it. ``beats`` names entries that
    follow from this one where both match.
    """

    id: str
    role: Role
    phase: Phase
    matches: tuple[Match, ...]
    words: Mapping[str, Words]
    examples: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: str
    versions: str = ""
    general: bool = False
    silent: bool = False
    beats: frozenset[str] = frozenset()


def parse(data: Mapping[str, Any]) -> Entry:
    """Make an entry from its table in a data file.

    Raises
    ------
    KeyError, TypeError, ValueError
        The table is not an entry; the schema beside the data files says what is.
    """
    return Entry(
        id=data["id"],
        role=Role(data["role"]),
        phase=Phase[data["phase"].upper()],
        matches=tuple(_match(one) for one in data["match"]),
        words={lang: _words(data[lang]) for lang in ("en", "zh")},
        examples=tuple(data["examples"]),
        sources=tuple(data["sources"]),
        confidence=data["confidence"],
        versions=data.get("versions", ""),
        general=data.get("general", False),
        silent=data.get("silent", False),
        beats=frozenset(data.get("beats", ())),
    )


def read(file: Path) -> list[dict[str, Any]]:
    """Return the tables of one data file.

    Raises
    ------
    ValueError
        It is no TOML; the file is named.
    """
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"{file}: {exc}") from exc
    entries: list[dict[str, Any]] = data.get("entry", [])
    return entries


@functools.cache
def catalogue(folder: Path = FOLDER) -> tuple[Entry, ...]:
    """Return all entries of a folder's data files, in the order of their names."""
    files = sorted(folder.glob("*.toml"))
    return tuple(parse(data) for file in files for data in read(file))


def _match(data: Mapping[str, Any]) -> Match:
    return Match(
        needles=tuple(data["needles"]),
        text=data["pattern"],
        needs=_contexts(data.get("needs", ())),
        unless=_contexts(data.get("unless", ())),
    )


def _contexts(many: Iterable[str | Mapping[str, Any]]) -> tuple[Context, ...]:
    tables: list[Mapping[str, Any]] = [
        {"pattern": one} if isinstance(one, str) else one for one in many
    ]
    return tuple(
        Context(
            text=table["pattern"],
            where=table.get("where", "around"),
            span=table.get("span", SPAN),
            needles=tuple(table.get("needles", ())),
        )
        for table in tables
    )


def _words(data: Mapping[str, Any]) -> Words:
    return Words(data["title"], data["cause"], tuple(data["fix"]), data["check"])


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
