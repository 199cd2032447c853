# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which waiting compiles start now."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.rig.builds.admission import policy
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.policy import Running, Waiting, choose

GIB = 1 << 30


def waiting(key: str, seconds: float, gib: float, **more: Any) -> Waiting:
    """Return a compile that holds the same for its whole life."""
    return Waiting(key, Curve.flat(seconds, int(gib * GIB)), **more)


def keys(chosen: list[Waiting]) -> list[str]:
    """Return the names of what was chosen."""
    return [one.key for one in chosen]


HILL = Curve(((0, 0), (10, 8 * GIB), (20, GIB), (100, GIB)))
"""A compile whose memory has a peak early on."""


def seen(key: str, curve: Curve, until: int, size: float = 1.0) -> Running:
    """Return a compile that was looked at each second."""
    one = Running(key, curve)
    for second in range(1, until + 1):
        one.observe(second, int(curve.at(second) * size))
    return one


def test_longest_first() -> None:
    """What takes longest starts first, so that it is not left alone at the end."""
    asked = [waiting("short", 5, 2), waiting("long", 500, 2), waiting("mid", 50, 2)]
    assert keys(choose([], asked, 100 * GIB, 2)) == ["long", "mid"]


def test_cores_and_the_users_cap_are_limits() -> None:
    """Memory for all is no reason to start more than the cores or the user allow."""
    asked = [waiting(f"a{i}", 10, 0.1) for i in range(9)]
    assert len(choose([], asked, 100 * GIB, 4)) == 4
    assert len(choose([], asked, 100 * GIB, 4, 3)) == 3
    assert len(choose([], asked, 100 * GIB, 4, 30)) == 4
    running = [Running("r", Curve.flat(10, GIB))] * 3
    assert choose(running, asked, 100 * GIB, 40, 3) == []
    assert choose([], [], 100 * GIB, 4) == []


def test_small_ones_fill_what_the_long_one_leaves() -> None:
    """What fits beside it starts, what does not waits."""
    asked = [waiting("long", 500, 6), waiting("big", 400, 6), waiting("small", 5, 1)]
    assert keys(choose([], asked, 10 * GIB, 8)) == ["long", "small"]


def test_growth_is_reserved_ahead() -> None:
    """A compile that is small now and large in a moment keeps others out."""
    young, asked = Running("hill", HILL), [waiting("next", 60, 4)]
    assert young.bytes == 0
    assert choose([young], asked, 10 * GIB, 8) == []


def test_room_is_given_again_when_the_peak_is_over() -> None:
    """The peak of a life is not reserved for all of it."""
    old = seen("hill", HILL, 25)
    assert keys(choose([old], [waiting("next", 60, 4)], 10 * GIB, 8)) == ["next"]


def test_peaks_are_put_side_by_side() -> None:
    """Two that cannot peak together start one after the other, and soon."""
    asked = [Waiting("a", HILL), Waiting("b", HILL)]
    assert keys(choose([], asked, 12 * GIB, 8)) == ["a"]
    assert keys(choose([seen("a", HILL, 24)], asked[1:], 12 * GIB, 8)) == ["b"]


def test_one_always_runs() -> None:
    """No budget is too small for the first one; it then runs alone."""
    asked = [waiting("a", 10, 5), waiting("b", 20, 5)]
    assert keys(choose([], asked, 0, 8)) == ["b"]
    assert choose([Running("b", Curve.flat(20, 5 * GIB))], asked[:1], 0, 8) == []


def test_what_fits_goes_before_what_fits_only_alone() -> None:
    """A compile too big for the budget is the last, and does start in the end."""
    asked = [waiting("huge", 900, 50), waiting("a", 10, 2)]
    assert keys(choose([], asked, 10 * GIB, 8)) == ["a"]
    assert keys(choose([], asked[:1], 10 * GIB, 8)) == ["huge"]


def test_the_killed_one_is_first_in_line() -> None:
    """A compile that was killed for want of memory is passed by nobody."""
    running = [seen("r", Curve.flat(100, 5 * GIB), 20)]
    asked = [waiting("long", 90, 2), waiting("killed", 9, 4.2, urgent=True)]
    assert choose(running, asked, 10 * GIB, 8) == []
    assert keys(choose([], asked, 10 * GIB, 8))[0] == "killed"


def test_a_killed_one_that_fits_only_alone_is_next() -> None:
    """All that runs comes to its end, and then it has everything."""
    asked = [waiting("small", 9, 1), waiting("killed", 90, 40, urgent=True)]
    running = [seen("r", Curve.flat(100, GIB), 20)]
    assert choose(running, asked, 10 * GIB, 8) == []
    assert keys(choose([], asked, 10 * GIB, 8)) == ["killed"]


def test_a_guess_keeps_its_peak_for_life() -> None:
    """What was never measured gets its kind's peak, and no margin above it."""
    asked = [waiting(f"g{i}", 60, 3, known=False) for i in range(9)]
    assert len(choose([], asked, 10 * GIB, 8)) == 3
    half = [Running("g", asked[0].curve, 30.0, 1, known=False)]
    assert len(choose(half, asked, 10 * GIB, 8)) == 2


@pytest.mark.parametrize("gib", [9.3, 9.5, 10, 10.1])
def test_what_all_but_fills_the_budget_starts_too(gib: float) -> None:
    """Between what can be planned and what is allowed there is no gap to fall into."""
    asked = [waiting("a", 60, gib, known=False), waiting("b", 60, gib)]
    assert len(choose([], asked, 10 * GIB, 8)) == 1
    assert policy.expected_seconds(asked, 10 * GIB, 8) == pytest.approx(120, abs=2)


def test_reserved_counts_what_is_still_to_come() -> None:
    """What runs will hold its peak, not what it holds now."""
    assert policy.reserved([]) == 0
    assert policy.reserved([Running("hill", HILL)]) > 7 * GIB
    assert policy.reserved([seen("hill", HILL, 30)]) < 2 * GIB


def test_expected_seconds() -> None:
    """The plan's end is that of the work on the cores, or of the memory."""
    asked = [waiting(f"a{i}", 100, 1) for i in range(6)]
    assert policy.expected_seconds(asked, 100 * GIB, 6) == pytest.approx(100, rel=0.05)
    assert policy.expected_seconds(asked, 100 * GIB, 2) == pytest.approx(300, rel=0.05)
    assert policy.expected_seconds(asked, 100 * GIB, 6, 3) == pytest.approx(200, 0.05)
    narrow = policy.expected_seconds(asked, int(2.9 * GIB), 6)
    assert narrow == pytest.approx(300, rel=0.05)
    assert policy.expected_seconds(asked, GIB // 2, 6) == pytest.approx(600)
    assert policy.expected_seconds([], GIB, 6) == 0


def test_fast_enough_to_ask_often() -> None:
    """A hundred that wait beside forty that run are judged in a moment."""
    lives = [HILL.scaled(seconds=1 + i / 20) for i in range(100)]
    asked = [Waiting(f"w{i}", life) for i, life in enumerate(lives)]
    running = [seen(f"r{i}", life, 5) for i, life in enumerate(lives[:40])]
    choose(running, asked, 80 * GIB, 64)
    took = []
    for _ in range(5):
        begun = time.process_time()
        choose(running, asked, 80 * GIB, 64)
        took.append(time.process_time() - begun)
    assert min(took) < 0.1


curves = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 4 * GIB)), min_size=1, max_size=6
).map(
    lambda steps: Curve(
        tuple(
            (float(sum(s for s, _ in steps[: i + 1])), size)
            for i, (_, size) in enumerate(steps)
        )
    )
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(curves, st.booleans()), max_size=8),
    st.integers(0, 9 * GIB),
    st.integers(1, 5),
)
def test_chosen_together_they_fit(
    lives: list[tuple[Curve, bool]], budget: int, cores: int
) -> None:
    """What starts together is never above the budget, at any second of any life."""
    asked = [Waiting(f"w{i}", c, known=known) for i, (c, known) in enumerate(lives)]
    chosen = choose([], asked, budget, cores)
    assert chosen or not asked
    assert len(chosen) <= cores
    assert len({one.key for one in chosen}) == len(chosen)
    if len(chosen) > 1:
        for second in range(400):
            assert sum(one.curve.at(second) for one in chosen) <= budget
    assert choose([], asked, budget, cores) == chosen
