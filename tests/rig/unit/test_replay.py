# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The replay of a recorded build, and what the admission makes of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rig import admission, replay
from benchmarks.rig.replay import Step
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Expected

GIB = 1 << 30


@pytest.fixture(scope="module")
def fork() -> list[Step]:
    """Return the recorded build of the fork."""
    return admission.steps_of(json.loads(admission.RECORD.read_text("utf-8")))


def known(steps: list[Step]) -> dict[str, Expected]:
    """Return exact predictions."""
    return {step.key: Expected(step.life, True) for step in steps}


def test_figures_of_the_record(fork: list[Step]) -> None:
    """Fixed jobs and cores only take what a plain queue of the record takes."""
    compiles = [Step(step.key, step.life, link=step.link) for step in fork]
    minutes = [replay.fixed(compiles, jobs).seconds / 60 for jobs in (6, 20, 40)]
    assert minutes == pytest.approx([29.9, 13.6, 10.9], abs=0.05)
    assert sum(step.life.duration for step in fork) / 60 == pytest.approx(170.5, 0.01)


@pytest.mark.parametrize("cores", [20, 40])
def test_goals_with_exact_predictions(fork: list[Step], cores: int) -> None:
    """Never above the budget, near the bound, and far below the article's rule."""
    budget = 26 * GIB
    ours = replay.admitted(fork, known(fork), budget, cores)
    assert ours.peak <= budget
    assert ours.seconds <= 1.10 * replay.bound(fork, budget, cores).seconds
    assert ours.seconds <= 0.60 * replay.fixed(fork, 6).seconds


def test_an_error_in_every_prediction(fork: list[Step]) -> None:
    """A seed is the same each time, and a fifth of error costs little."""
    one = admission.trial(fork, 26 * GIB, 40, 1)
    assert one == admission.trial(fork, 26 * GIB, 40, 1)
    assert one.fill <= 1
    assert one.ratio <= 1.10


def test_links_wait_for_their_objects(fork: list[Step]) -> None:
    """No library begins before the last of its objects has ended."""
    outcome = replay.fixed(fork, 20)
    lives = {step.key: step.life for step in fork}
    links = [step for step in fork if step.link]
    assert len(links) == 6
    assert sum(bool(step.needs) for step in links) == 6
    for step in links:
        ends = [outcome.starts[k] + lives[k].duration for k in step.needs]
        assert outcome.starts[step.key] >= max(ends)


def test_highest_sees_what_overlaps() -> None:
    """Two lives count together where both are there, and no longer."""
    hill = Curve(((0, 0), (10, 100), (20, 0)))
    assert replay.highest([(0, hill)]) == pytest.approx(100)
    assert replay.highest([(0, hill), (10, hill)]) == pytest.approx(100)
    assert replay.highest([(0, hill), (5, hill)]) == pytest.approx(150)
    late = Curve(((5, 30), (9, 30)))
    assert replay.highest([(0, late), (9, late)]) == pytest.approx(30)


def test_few_jobs_of_ninja_hide_the_long_ones() -> None:
    """The admission prefers the longest among those that ask, and can do no more."""
    steps = [Step(f"s{i}", Curve.flat(10, GIB)) for i in range(8)]
    steps.append(Step("long", Curve.flat(60, GIB)))
    all_asked = replay.admitted(steps, known(steps), 100 * GIB, 2)
    few = replay.admitted(steps, known(steps), 100 * GIB, 2, jobs=3)
    assert all_asked.starts["long"] == 0
    assert few.starts["long"] > 0
    assert all_asked.seconds < few.seconds


def test_a_compile_too_big_for_the_budget_runs_alone() -> None:
    """It does not starve, and it holds up nobody else."""
    steps = [Step(f"s{i}", Curve.flat(10, GIB)) for i in range(4)]
    steps.append(Step("huge", Curve.flat(30, 50 * GIB)))
    outcome = replay.admitted(steps, known(steps), 4 * GIB, 8)
    last = max(at for key, at in outcome.starts.items() if key != "huge")
    assert outcome.starts["huge"] >= last + 10


lives = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 3 * GIB)), min_size=1, max_size=5
).map(
    lambda parts: Curve(
        tuple(
            (float(sum(s for s, _ in parts[: i + 1])), size)
            for i, (_, size) in enumerate(parts)
        )
    )
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(lives, min_size=1, max_size=10),
    st.integers(3 * GIB, 12 * GIB),
    st.integers(1, 6),
)
def test_exact_predictions_stay_below_the_budget(
    curves: list[Curve], budget: int, cores: int
) -> None:
    """Always progress to the end, never above the budget, and the same each time."""
    steps = [Step(f"s{i}", life) for i, life in enumerate(curves)]
    outcome = replay.admitted(steps, known(steps), budget, cores, look_s=3)
    assert set(outcome.starts) == {step.key for step in steps}
    assert outcome.peak <= budget * (1 + 1e-6)
    assert outcome.seconds <= sum(life.duration for life in curves) + 1e-6
    assert replay.admitted(steps, known(steps), budget, cores, look_s=3) == outcome
