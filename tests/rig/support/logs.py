# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Logs as people really paste them: what collectors, terminals and accidents do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"

Change = Callable[[list[str]], list[str]]


def journal(lines: list[str]) -> list[str]:
    """Put a journal's prefix in front of each line."""
    return [
        f"Nov 30 12:{n // 60 % 60:02}:{n % 60:02} gpu01 vllm[4242]: {line}"
        for n, line in enumerate(lines)
    ]


def compose(lines: list[str]) -> list[str]:
    """Put docker compose's prefix in front of each line."""
    return [f"vllm-1  | {line}" for line in lines]


def actions(lines: list[str]) -> list[str]:
    """Put a CI system's time stamp in front of each line."""
    return [
        f"2026-11-30T12:00:{n % 60:02}.1234567Z {line}" for n, line in enumerate(lines)
    ]


def image_build(lines: list[str]) -> list[str]:
    """Put an image build's step and seconds in front of each line."""
    return [f"#14 {n / 10:.3f} {line}" for n, line in enumerate(lines)]


def crlf(lines: list[str]) -> list[str]:
    """End each line as Windows does."""
    return [f"{line}\r" for line in lines]


def coloured(lines: list[str]) -> list[str]:
    """Paint each line, its words too."""
    return [
        "\x1b[1m"
        + line.replace("rror", "rr\x1b[31mor\x1b[0m").replace(" ", "\x1b[K ", 1)
        + "\x1b[0m"
        for line in lines
    ]


def quoted(lines: list[str]) -> list[str]:
    """Quote the log as a mail does."""
    return [f"> {line}" for line in lines]


def embedded(lines: list[str]) -> list[str]:
    """Put it into the middle of a long log that says nothing else."""
    before = [f"-- progress {n} of 2000" for n in range(2000)]
    after = [f"done with part {n}" for n in range(700)]
    return [*before, *lines, *after]


def narrow(width: int) -> Change:
    """Return the change that a terminal of so many columns makes."""

    def wrap(lines: list[str]) -> list[str]:
        return [
            line[start : start + width]
            for line in lines
            for start in range(0, max(1, len(line)), width)
        ]

    return wrap


NUMBERED: dict[str, tuple[Change, int]] = {
    "journal": (journal, 0),
    "compose": (compose, 0),
    "actions": (actions, 0),
    "image-build": (image_build, 0),
    "crlf": (crlf, 0),
    "coloured": (coloured, 0),
    "quoted": (quoted, 0),
    "embedded": (embedded, 2000),
}
"""Changes that keep the story, and by how much each moves a line's number."""

MOVING: dict[str, Change] = {"narrow-80": narrow(80), "narrow-120": narrow(120)}
"""Changes that keep the story and move lines."""


def damaged(
    text: bytes, other: bytes, chance: random.Random, *, lines_stay: bool = False
) -> bytes:
    """Return a log after an accident: cut, mixed with another, or with noise in it.

    With `lines_stay`, no line is damaged itself: half a warning may be no warning.
    """
    for _ in range(chance.randint(1, 4)):
        accidents = _ACCIDENTS[: _OF_LINES if lines_stay else None]
        text = chance.choice(accidents)(text, other, chance)
    return text


def _lose(text: bytes, _: bytes, chance: random.Random) -> bytes:
    lines = text.split(b"\n")
    start = chance.randint(0, len(lines))
    return b"\n".join(lines[start : start + chance.randint(0, len(lines))])


def _cut(text: bytes, _: bytes, chance: random.Random) -> bytes:
    start = chance.randint(0, len(text))
    return text[start : start + chance.randint(0, len(text))]


def _mix(text: bytes, other: bytes, chance: random.Random) -> bytes:
    both = [[*text.split(b"\n")], [*other.split(b"\n")]]
    out = []
    while any(both):
        lines = chance.choice([one for one in both if one])
        out.append(lines.pop(0))
    return b"\n".join(out)


def _shuffle(text: bytes, _: bytes, chance: random.Random) -> bytes:
    lines = text.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def _noise(text: bytes, _: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(text))
    return text[:at] + chance.randbytes(chance.randint(1, 300)) + text[at:]


def _repeat(text: bytes, _: bytes, chance: random.Random) -> bytes:
    return text * chance.randint(2, 5)


def _one_line(text: bytes, _: bytes, __: random.Random) -> bytes:
    return text.replace(b"\n", b" ")


_ACCIDENTS = (_lose, _mix, _repeat, _shuffle, _cut, _noise, _one_line)
_OF_LINES = 3
