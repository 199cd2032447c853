# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The catalogue is right about its logs however they were collected or damaged."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rig.support.logs import CASES, MOVING, NUMBERED, damaged
from tools.rig.diagnose import examine, words
from tools.rig.diagnose.entries import catalogue
from tools.rig.diagnose.examine import Examined
from tools.rig.diagnose.match import PATIENCE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.real

LOGS = sorted(
    (folder / log["file"], log["line"])
    for folder in CASES.iterdir()
    if (folder / "case.toml").is_file()
    for log in tomllib.loads((folder / "case.toml").read_text("utf-8"))["log"]
)
HEALTHY = sorted((CASES / "healthy").glob("*.txt"))
SLOW = 5.0
"""Seconds for one small log, on a machine that is busy with other things."""


def of(lines: list[str]) -> Examined:
    """Return what diagnose says of lines."""
    return examine.stream(["\n".join(lines).encode()])


def lines_of(file: Path) -> list[str]:
    """Return a log's lines."""
    return file.read_text("utf-8").split("\n")


def told(result: Examined) -> list[str]:
    """Return the ids of the findings."""
    return [finding.hit.entry.id for finding in result.judgement.findings]


@pytest.mark.parametrize("how", sorted(NUMBERED))
def test_collected(how: str) -> None:
    """Prefixes, colours and neighbours change neither the finding nor its line."""
    change, moved = NUMBERED[how]
    wrong = []
    for file, line in LOGS:
        before = of(lines_of(file))
        after = of(change(lines_of(file)))
        name = file.parent.name
        lines = [
            finding.hit.line.number - moved
            for finding in after.judgement.findings
            if finding.hit.entry.id == name
        ]
        if told(before)[:1] != told(after)[:1] or lines != [line]:
            wrong.append(f"{name}/{file.name}: {told(before)} -> {told(after)} {lines}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("how", sorted(MOVING))
def test_wrapped(how: str) -> None:
    """A terminal's width does not change the finding."""
    change = MOVING[how]
    wrong = []
    for file, _ in LOGS:
        after = of(change(lines_of(file)))
        if file.parent.name not in told(after):
            wrong.append(f"{file.parent.name}/{file.name}: {told(after)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("how", sorted(NUMBERED))
def test_healthy_stays_healthy(how: str) -> None:
    """No collector makes a cause out of a healthy log."""
    change, _ = NUMBERED[how]
    for file in HEALTHY:
        result = of(change(lines_of(file)))
        assert result.judgement.verdict.value == "healthy", (file, told(result))


def _accidents(runs: int) -> None:
    chance = random.Random(7)
    texts = [file.read_bytes() for file, _ in LOGS]
    healthy = [file.read_bytes() for file in HEALTHY]
    for number in range(runs):
        well = number % 4 == 0 and bool(healthy)
        one, two = (chance.choice(healthy if well else texts) for _ in range(2))
        log = damaged(one, two, chance, lines_stay=well)
        started = time.monotonic()
        result = examine.stream([log])
        said = words.as_text(result.judgement, "en", {}, result.lines)
        assert said
        assert time.monotonic() - started < SLOW, (number, log[:200])
        if well:
            assert result.judgement.root is None, (number, told(result))


def test_accidents() -> None:
    """Damaged logs never crash or hang it, and health is never called a failure."""
    _accidents(600)


@pytest.mark.long
def test_many_accidents() -> None:
    """The same ten thousand times."""
    _accidents(10_000)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=200), max_size=30))
def test_any_text(lines: list[str]) -> None:
    """Whatever the text, there is a verdict and it can be said in both languages."""
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    result = examine.stream([data])
    for lang in words.LANGUAGES:
        assert words.as_text(result.judgement, lang, {}, result.lines)
    assert words.as_json(result.judgement, "en", {})["verdict"]


NASTY = [
    "a" * 4_000,
    "error: " * 500,
    "'" * 4_000,
    " " * 4_000,
    "/x" * 2_000,
    "((((" * 1_000,
    "1.2.3." * 600,
    "error error: error(1): " * 170,
    "aB_9" * 1_000,
    "=" * 2_000 + "'" + "\\" * 1_900,
]


def test_no_catastrophic_pattern() -> None:
    """Every pattern comes to an end soon on text that is made to keep it busy.

    Behind each pattern's own example, cut in the middle, stand long runs of what its
    repetitions like to eat.
    """
    slow = []
    for entry in catalogue():
        starts = ["", *(example[: len(example) // 2] for example in entry.examples)]
        patterns = [match.pattern for match in entry.matches]
        for match in entry.matches:
            patterns += [one.pattern for one in (*match.needs, *match.unless)]
        for pattern in patterns:
            for text in (start + run for start in starts for run in NASTY):
                begun = time.process_time()
                try:
                    pattern.search(text[:4_000], timeout=4 * PATIENCE)
                except TimeoutError:
                    slow.append((entry.id, pattern.pattern, text[:60]))
                    break
                if time.process_time() - begun > PATIENCE:
                    slow.append((entry.id, pattern.pattern, text[:60]))
                    break
    assert not slow
