# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A judgement in words: complete, in two languages, with nothing secret in it."""

from __future__ import annotations

import pytest

from tests.rig.support.entries import entry
from tools.rig.diagnose import words
from tools.rig.diagnose.entries import catalogue
from tools.rig.diagnose.judge import Judgement, judge
from tools.rig.diagnose.match import Matcher

FLAT = entry(
    "flat",
    r"flat tyre of (?P<what>\w+)",
    "flat tyre",
    en={
        "title": "{what} has a flat tyre",
        "cause": "A nail in {checkout}",
        "fix": ["$ mend {venv} {unheard}", "or walk {{far}}"],
        "check": "look",
    },
)
TAIL = entry("tail", "tail of it", role="consequence")
MEH = entry("meh", "meh", "meh", role="harmless")


def said(text: str) -> Judgement:
    """Return the judgement of a text."""
    return judge(Matcher([FLAT, TAIL, MEH]).read([text.encode()]))


def text_of(text: str, lang: str = "en", **facts: str) -> list[str]:
    """Return what people read."""
    return words.as_text(said(text), lang, facts, len(text.splitlines()))


@pytest.mark.parametrize(
    ("env", "lang"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_language(env: dict[str, str], lang: str) -> None:
    """The locale chooses, in the order that the C library looks at it."""
    assert words.language_of(env) == lang


def test_filled() -> None:
    """The log's values and the machine's stand in the words; others are named."""
    root = said("flat tyre of car\n").root
    assert root is not None
    filled = words.filled(root, "en", {"venv": "/v x"})
    assert filled.title == "car has a flat tyre"
    assert filled.cause == "A nail in 1Cat-vLLM"
    assert filled.fix == ("$ mend /v x <unheard>", "or walk {far}")


@pytest.mark.parametrize("lang", words.LANGUAGES)
def test_fewer_than_one(lang: str) -> None:
    """A build that ran one compile at a time is not told to run fewer."""
    log = b"ninja -v\nFAILED: [code=137] a.cu.o\n"
    root = judge(Matcher(catalogue()).read([log])).root
    assert root is not None and root.entry.id in words.TOO_LARGE
    two = words.filled(root, lang, {"ran": "2", "jobs": "1"})
    assert any("--jobs 1" in line for line in two.fix)
    one = words.filled(root, lang, {"ran": "1", "jobs": "1"})
    assert not any("--jobs" in line for line in one.fix)
    assert "free -h" in one.fix[-1]


def test_too_large_are_entries() -> None:
    """The entries exist whose cure is fewer compiles."""
    assert {one.id for one in catalogue()} >= words.TOO_LARGE


def test_people() -> None:
    """The root cause is explained whole; the rest in a line or two each."""
    lines = text_of("meh\nflat tyre of car\ntail of it\ntail of it\n")
    assert lines[:2] == [
        "ROOT CAUSE: car has a flat tyre",
        "  line 2: flat tyre of car",
    ]
    text = "\n".join(lines)
    for part in (
        "why: A nail",
        "$ mend",
        "check: look",
        "sure: very",
        "source: a test",
    ):
        assert part in text
    assert "FOLLOWS FROM IT: tail happened\n  line 3 (2 times): tail of it" in text
    assert "HARMLESS: meh happened\n  line 1: meh\n  why: since it had to" in text
    assert lines[-1]


def test_chinese() -> None:
    """The same in Chinese, commands unchanged."""
    lines = text_of("tail of it\nflat tyre of car\n", "zh")
    assert lines[0].startswith("根本原因: flat 发生")
    assert lines[1] == "  第 2 行: flat tyre of car"
    assert "    $ mend VENV" in lines


@pytest.mark.parametrize(
    ("text", "last"),
    [("well\n", "nothing wrong in 1 lines"), ("", "the log is empty")],
)
def test_healthy(text: str, last: str) -> None:
    """Nothing wrong is said, and so is that there was nothing to read."""
    assert text_of(text) == [last]


def test_unknown() -> None:
    """What is not recognised is said so, with the lines that tell most."""
    lines = text_of("x.cu(3): error: oh\ntail of it\n")
    assert lines[0] == "A CONSEQUENCE, ITS CAUSE IS NOT IN THIS LOG: tail happened"
    assert "not recognised: no entry of the catalogue explains this log" in lines
    assert lines[-2:] == ["        1  x.cu(3): error: oh", "hint: invoke bundle"]


def test_often() -> None:
    """What repeats for ever is not counted to its end, and that is said."""
    lines = text_of("flat tyre of car\n" * 1_000)
    assert "+ times)" in lines[1]


def test_json() -> None:
    """The document has the fields that were promised, the root cause first."""
    document = words.as_json(said("meh\nflat tyre of car\n"), "en", {})
    assert document["verdict"] == "failure"
    first, second = document["findings"]
    assert first == {
        "id": "flat",
        "role": "cause",
        "line": 2,
        "evidence": "flat tyre of car",
        "title": "car has a flat tyre",
        "cause": "A nail in 1Cat-vLLM",
        "fix": ["$ mend VENV <unheard>", "or walk {far}"],
        "check": "look",
        "confidence": "high",
        "sources": ["a test"],
        "phase": "compile",
        "times": 1,
    }
    assert second["role"] == "harmless"
    unknown = words.as_json(said("ValueError: no\n"), "en", {})
    assert unknown["telling"] == [{"line": 1, "text": "ValueError: no"}]


def test_no_secret() -> None:
    """A token that stands on the decisive line is masked."""
    token = "hf_" + "A1b2C3d4E5" * 4
    document = words.as_json(said(f"flat tyre of car HF_TOKEN={token}\n"), "en", {})
    assert token not in str(document)
    assert token not in "\n".join(text_of(f"flat tyre of car HF_TOKEN={token}\n"))


@pytest.mark.parametrize("lang", words.LANGUAGES)
def test_no_way_to_gits_servers(lang: str) -> None:
    """Who cannot clone is told of mirrors, and no command has a word to fill in."""
    known = {one.id: one for one in catalogue()}
    for name in ("dns-failure", "host-unreachable"):
        fix = "\n".join(known[name].words[lang].fix)
        assert "git_mirrors" in fix and "ONECAT_GIT_MIRRORS" in fix
    for line in known["dns-failure"].words[lang].fix:
        typed = [part for part in line.split("`") if part.startswith("$ getent")]
        assert not any(word.isupper() for part in typed for word in part.split())
