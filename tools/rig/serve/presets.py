# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Launch presets, as data with their sources."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.serve.flags import nearest
from tools.rig.serve.parser import Parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parents[1] / "data" / "presets.toml"


@dataclass(frozen=True)
class Preset:
    """One preset; the fields are those of the data file, 0 where it says nothing."""

    name: str
    title: str
    words: tuple[str, ...]
    source: str
    proved: bool
    cost: str
    cards: int = 0
    memory: int = 0
    instead: tuple[str, ...] = ()

    def words_for(self, parser: Parser | None) -> tuple[str, ...]:
        """Return its options, as the installed vLLM has them."""
        if self.instead and parser is not None and not parser.has(self.words[0]):
            return self.instead
        return self.words

    def lines(self, parser: Parser | None = None) -> list[str]:
        """Return what it expands to, for people."""
        tensor = ["--tp", str(self.cards)] if self.cards else []
        words = shlex.join([*tensor, *self.words_for(parser)])
        doubt = "" if self.proved else " (not validated by the fork)"
        return [
            f"preset {self.name}: {self.title}",
            f"  {words}",
            f"  from {self.source}{doubt}",
            f"  {self.cost}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@cache
def known() -> tuple[Preset, ...]:
    """Return all presets in the order of the file."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(map(_parsed, data["preset"]))


def chosen(names: str) -> tuple[Preset, ...]:
    """Return the presets of a list with commas.

    Raises
    ------
    UsageError
        When one is not known, or two of them are for different hardware.
    """
    table = {preset.name: preset for preset in known()}
    found = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name not in table:
            alike = nearest(name, table)
            raise UsageError(
                f"there is no preset {name}",
                usual=f"There are: {', '.join(table)}.",
                hint=f"--preset {alike[0]}" if alike else "--preset list",
            )
        found.append(table[name])
    hardware = [preset.name for preset in found if preset.cards]
    if len(set(hardware)) > 1:
        raise UsageError(
            f"the presets {' and '.join(hardware)} are for different machines",
            hint=f"--preset {hardware[0]}",
        )
    return tuple(found)


def _parsed(one: dict[str, Any]) -> Preset:
    values: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in one.items()}
    return Preset(**values)
