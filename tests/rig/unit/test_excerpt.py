# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is kept of a large log: what may matter, with neighbours, and not too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.rig.diagnose.entries import FARTHEST
from tools.rig.diagnose.excerpt import ENDS, MOST, OFTEN, Excerpt, Finder


def cut(text: str, size: int) -> Iterator[bytes]:
    """Yield a text in blocks of about so many bytes that end where a line ends."""
    data, start = text.encode(), 0
    while start < len(data):
        end = data.find(b"\n", start + size) + 1 or len(data)
        yield data[start:end]
        start = end


def kept(excerpt: Excerpt) -> dict[int, str]:
    """Return the lines that were kept, by number."""
    return {
        first + offset: line
        for first, lines in excerpt.stretches
        for offset, line in enumerate(lines)
    }


@pytest.mark.parametrize("size", [100, 5_000, 1 << 20])
def test_right_numbers(size: int) -> None:
    """Each kept line has its number, whatever the blocks; the ends are always kept."""
    lines = [f"quiet {n}" for n in range(1, 10_001)]
    for number in (3_000, 6_001):
        lines[number - 1] = f"here \x1b[1mBO\x1b[0mOM {number}"
    excerpt = Finder(["boom"]).excerpt(cut("\n".join(lines), size))
    got = kept(excerpt)
    assert excerpt.lines == 10_000
    assert set(range(1, ENDS + 1)) <= set(got)
    assert set(range(10_001 - ENDS, 10_001)) <= set(got)
    for number in (3_000, 6_001):
        assert set(range(number - FARTHEST, number + FARTHEST + 1)) <= set(got)
        assert got[number] == f"here BOOM {number}"
    for number, line in got.items():
        assert number in (3_000, 6_001) or line == f"quiet {number}"
    assert len(got) < 3 * ENDS


def test_bounded() -> None:
    """A line that repeats for ever is kept only so often."""
    text = "boom happened again\n" * 400_000
    excerpt = Finder(["boom"]).excerpt(cut(text, 1 << 20))
    assert excerpt.lines == 400_000
    assert len(kept(excerpt)) <= OFTEN + 2 * FARTHEST + 2 * ENDS
    many = [f"needle{n:04}" for n in range(4000)]
    filler = "\n" * (2 * FARTHEST)
    excerpt = Finder(many).excerpt(cut((filler.join(many) + filler), 1 << 20))
    assert len(kept(excerpt)) <= 2 * MOST + 4 * FARTHEST + 2 * ENDS


def test_signals() -> None:
    """A line that no entry knows is kept when it speaks of an error."""
    lines = [f"quiet {n}" for n in range(5_000)]
    lines[2_500] = "some ERROR nobody knows"
    got = kept(Finder(["boom"]).excerpt(cut("\n".join(lines), 9_999)))
    assert got[2_501] == lines[2_500]
    assert 2_600 not in got


def test_endless_line() -> None:
    """Pieces of one long line are one line."""
    pieces = [b"a\n" + b"x" * 100, b"y" * 100, b"y\nboom\nlast"]
    excerpt = Finder(["boom"]).excerpt(pieces)
    got = kept(excerpt)
    assert excerpt.lines == 4
    assert got[1] == "a" and got[3] == "boom" and got[4] == "last"
    assert got[2].startswith("xxx")


def test_nothing() -> None:
    """An empty log has no lines."""
    assert Finder(["boom"]).excerpt([]) == Excerpt([], 0)


def test_found_in() -> None:
    """Literals that overlap are all found, whatever the case."""
    finder = Finder(["died", "cicc died", "nowhere"])
    assert finder.found_in("nvcc: CICC Died due to") == {"died", "cicc died"}
