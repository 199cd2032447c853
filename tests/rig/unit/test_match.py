# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Patterns match lines as people's logs hold them: wrapped, interleaved, in context."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.rig.support.entries import entry
from tools.rig.diagnose.entries import Entry
from tools.rig.diagnose.match import PATIENCE, REPEATS, Hit, Matcher


def hits(text: str, *entries: Entry) -> list[Hit]:
    """Return where the entries match in a text."""
    return list(Matcher(entries).read([text.encode()]).hits)


def numbers(text: str, *entries: Entry) -> list[tuple[str, int]]:
    """Return the same as names and line numbers."""
    return [(hit.entry.id, hit.line.number) for hit in hits(text, *entries)]


GONE = entry("gone", r"the big thing (?P<what>\w+) is gone away", "big thing", "gone")


class TestWrapped:
    """Messages that stand on several lines."""

    def test_indented(self) -> None:
        """CMake breaks at 80 columns and indents; the line that holds most is named."""
        text = "CMake Error at x:\n  the\n  big thing foo is gone\n  away\n\nnext\n"
        (hit,) = hits(text, GONE)
        assert hit.line.number == 3
        assert hit.groups == {"what": "foo"}

    def test_at_the_width(self) -> None:
        """A terminal breaks in the middle of a word."""
        message = "x" * 50 + " the big thing foo is gone away and more"
        text = f"{message[:70]}\n{message[70:]}\nshort\n"
        assert numbers(text, GONE) == [("gone", 1)]

    def test_part_of_a_whole(self) -> None:
        """What only a part of a broken line seems to say is not said."""
        message = "x" * 50 + " the big thing foo is gone away and more"
        less = entry("less", r"^ ?foo is gone away")
        text = f"{message[:64]}\n{message[64:]}\n"
        assert numbers(text, GONE, less) == [("gone", 2)]

    def test_the_longest_line_is_not_a_broken_one(self) -> None:
        """A message that begins anew does not go on from the longest line."""
        fine = entry("fine", r"^the big thing", "big thing", unless=(r"^ERROR: no$",))
        text = f"the big thing foo {'x' * 70}\nERROR: no\nshort\n"
        assert numbers(text, fine) == []

    def test_interleaved(self) -> None:
        """Another process may write between two lines of one message."""
        text = (
            "(Worker_TP0 pid=1) the big thing foo\n"
            "(Worker_TP1 pid=2) INFO 11-30 12:00:00 [a.py:1] well\n"
            "(Worker_TP0 pid=1)   is gone away\n"
        )
        assert numbers(text, GONE) == [("gone", 1)]

    @pytest.mark.parametrize(
        "text",
        [
            "the big thing foo\nis gone away\n",
            "  the big thing foo\n\n  is gone away\n",
            "(W pid=1) the big thing foo\n(X pid=2)   is gone away\n",
        ],
    )
    def test_not_one_message(self, text: str) -> None:
        """Short lines, paragraphs and processes are not joined."""
        assert numbers(text, GONE) == []

    def test_once(self) -> None:
        """A whole match on a line is not found again in the joined lines."""
        text = "  the big thing foo is gone away\n  the rest\n  and more\n"
        assert numbers(text, GONE) == [("gone", 1)]


class TestContext:
    """What must, or must not, stand near."""

    @pytest.mark.parametrize(
        ("where", "line", "matches"),
        [
            ("around", 1, True),
            ("around", 9, True),
            ("before", 1, True),
            ("before", 9, False),
            ("after", 1, False),
            ("after", 9, True),
            ("before", 5, False),
            ("around", 5, True),
        ],
    )
    def test_where(self, where: str, line: int, matches: bool) -> None:
        """Context is looked for before, after or around, the line itself included."""
        lines = [f"quiet {n}" for n in range(9)]
        lines[4] = "boom"
        lines[line - 1] += " hint"
        context = {"pattern": "hint", "where": where, "span": 5}
        text = "\n".join(lines)
        assert bool(hits(text, entry("boom", "boom", needs=(context,)))) is matches
        assert bool(hits(text, entry("boom", "boom", unless=(context,)))) is not matches

    def test_span(self) -> None:
        """What is farther away than the span does not count."""
        text = "hint\n" + "\n" * 31 + "boom\n"
        assert numbers(text, entry("boom", "boom", needs=("hint",))) == []
        near = {"pattern": "hint", "span": 40}
        assert numbers(text, entry("boom", "boom", needs=(near,))) == [("boom", 33)]

    @pytest.mark.parametrize("said", ["torch 2.11+cu130", "torch 2.10+cu128"])
    def test_anywhere(self, said: str) -> None:
        """Some context stands thousands of lines away."""
        context: dict[str, Any] = {
            "pattern": r"torch \S+cu130",
            "where": "anywhere",
            "needles": ["+cu130"],
        }
        text = "quiet\n" * 2_000 + said + "\n" + "quiet\n" * 2_000 + "boom\n"
        found = numbers(text, entry("boom", "boom", needs=(context,)))
        assert found == ([("boom", 4_002)] if "cu130" in said else [])

    def test_wrapped_context(self) -> None:
        """Context may be wrapped, too."""
        text = "a long\n  hint\nboom\n"
        assert numbers(text, entry("boom", "boom", needs=("long hint",)))


def test_repeats() -> None:
    """An entry that matches for ever is kept only so often."""
    found = hits("boom\nquiet\n" * 1_000, entry("boom", "boom"))
    assert 1 <= len(found) <= REPEATS


def test_catastrophic_pattern() -> None:
    """A pattern that does not come to an end is passed over, not waited for."""
    evil = entry("evil", r"evil (?:a+)+(?:b|c)$", "evil")
    started = time.monotonic()
    found = numbers(f"evil {'a' * 60}!\nboom\n", evil, entry("boom", "boom"))
    assert found == [("boom", 2)]
    assert time.monotonic() - started < 40 * PATIENCE


def test_two_shapes() -> None:
    """Two entries that share a literal are both asked."""
    one, two = entry("one", "boom 1", "boom"), entry("two", "boom 2", "boom")
    assert numbers("boom 2\nboom 1\n", one, two) == [("two", 1), ("one", 2)]
