# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Every entry of the failure catalogue is whole, and is right about its own logs."""

from __future__ import annotations

import json
import string
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from tools.rig.diagnose import entries, examine, words
from tools.rig.diagnose.clean import clean
from tools.rig.diagnose.entries import FOLDER, Entry, Role, parse, read
from tools.rig.diagnose.examine import Examined
from tools.rig.diagnose.reader import blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = Path(__file__).parents[1] / "cases"
SCHEMA = json.loads(FOLDER.with_suffix(".schema.json").read_text("utf-8"))
WANTED_CAUSES = 120


class Named(NamedTuple):
    """An entry's table and the area (the data file) that it stands in."""

    area: str
    table: dict[str, Any]

    @property
    def name(self) -> str:
        """Return what pytest shows, so that one area can be picked."""
        return f"{self.area}-{self.table.get('id', 'nameless')}"

    @property
    def entry(self) -> Entry:
        """Return the table as an entry."""
        return ENTRIES[self.table["id"]]


FILES = sorted(FOLDER.glob("*.toml"))
TABLES = [Named(file.stem, table) for file in FILES for table in read(file)]
ENTRIES = {one.table["id"]: parse(one.table) for one in TABLES}
every_entry = pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)


def diagnosed(file: Path) -> Examined:
    """Return what diagnose says of a log file."""
    with file.open("rb") as stream:
        return examine.stream(blocks(stream), str(file))


def told(entry: Entry) -> dict[str, Any]:
    """Return what the entry's folder says of its logs."""
    text = (CASES / entry.id / "case.toml").read_text("utf-8")
    return tomllib.loads(text)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_schema(file: Path) -> None:
    """Each data file keeps to the schema."""
    problems = [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in Draft202012Validator(SCHEMA).iter_errors({"entry": read(file)})
    ]
    assert not problems


def test_names_are_unique() -> None:
    """No two entries share an id, and ``beats`` names entries that exist."""
    counts = Counter(one.table["id"] for one in TABLES)
    assert [name for name, count in counts.items() if count > 1] == []
    beaten = {name for one in TABLES for name in one.table.get("beats", ())}
    assert beaten - set(counts) == set()


def test_there_are_enough() -> None:
    """The catalogue explains at least as many causes as was promised."""
    causes = [one for one in TABLES if one.table["role"] == Role.CAUSE.value]
    assert len(causes) >= WANTED_CAUSES


@every_entry
def test_examples(one: Named) -> None:
    """Each example is found by a literal and matched; no pattern is without one."""
    used = set()
    for example in one.entry.examples:
        text = clean(1, example)[-1].text
        hits = {
            number
            for number, match in enumerate(one.entry.matches)
            if match.pattern.search(text)
        }
        for number in hits:
            assert any(
                needle in text.lower() for needle in one.entry.matches[number].needles
            ), f"no needle of pattern {number} on: {text}"
        assert hits, f"no pattern matches: {text}"
        used |= hits


@every_entry
def test_words(one: Named) -> None:
    """Both languages name the same values, and all of them are known."""
    known = set(words.GENERIC)
    for match in one.entry.matches:
        known |= set(match.pattern.groupindex)
    for lang in words.LANGUAGES:
        said = one.entry.words[lang]
        for text in (said.title, said.cause, said.check, *said.fix):
            names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
            assert names <= known, text
    english, chinese = (one.entry.words[lang] for lang in words.LANGUAGES)
    commands = [line for line in english.fix if line.startswith("$")]
    assert commands == [line for line in chinese.fix if line.startswith("$")]


@every_entry
def test_own_logs(one: Named) -> None:
    """At least two logs of different shape end in this entry, at the stated line."""
    logs = told(one.entry)["log"]
    assert len(logs) >= 2
    for log in logs:
        result = diagnosed(CASES / one.entry.id / log["file"]).judgement
        found = [finding.hit.entry.id for finding in result.findings]
        assert one.entry.id in found, (log["file"], result.verdict, found)
        finding = result.findings[found.index(one.entry.id)]
        if one.entry.role is Role.CAUSE:
            assert found[0] == one.entry.id, (log["file"], found)
        assert finding.role is one.entry.role, log["file"]
        assert finding.hit.line.number == log["line"], log["file"]
        assert log["origin"]


@every_entry
def test_near_misses(one: Named) -> None:
    """A log that looks alike is not taken for this failure."""
    nears = told(one.entry)["near"]
    assert nears
    for near in nears:
        result = diagnosed(CASES / one.entry.id / near["file"]).judgement
        found = [finding.hit.entry.id for finding in result.findings]
        assert one.entry.id not in found, near["file"]
        assert result.verdict.value == near["verdict"], (near["file"], found)
        if "cause" in near:
            assert found[:1] == [near["cause"]], near["file"]
        assert near["why"]


def test_every_case_has_its_entry() -> None:
    """No folder of logs is left over from an entry that is gone, and no file unused."""
    known = {one.table["id"] for one in TABLES}
    for folder in CASES.iterdir():
        if folder.name in ("healthy", "unknown"):
            continue
        assert folder.name in known
        case = tomllib.loads((folder / "case.toml").read_text("utf-8"))
        named = {log["file"] for log in case["log"] + case["near"]}
        assert {file.name for file in folder.iterdir()} == named | {"case.toml"}


@pytest.mark.parametrize(
    "file", sorted((CASES / "healthy").glob("*.txt")), ids=lambda file: file.stem
)
def test_healthy_logs(file: Path) -> None:
    """Whole logs of things that went well are called healthy."""
    result = diagnosed(file).judgement
    assert result.verdict.value == "healthy", (result.findings, result.telling)


def test_catalogue_reads_every_file() -> None:
    """What the tool uses is all that stands in the data files."""
    assert [entry.id for entry in entries.catalogue()] == [
        one.table["id"] for one in TABLES
    ]
