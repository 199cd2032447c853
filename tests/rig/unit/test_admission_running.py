# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A running compile: the prediction, corrected by what it was seen to hold."""

from __future__ import annotations

import pytest

from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.running import Running, outlook

GIB = 1 << 30
LIFE = Curve(
    ((0, 0), (20, 2 * GIB), (30, GIB), (60, 3 * GIB), (70, GIB), (200, GIB), (240, 0))
)


def watched(until: int, speed: float = 1.0, size: float = 1.0) -> Running:
    """Return a compile that really is slower and larger, seen for some seconds."""
    one = Running("x.cu.o", LIFE)
    for second in range(1, until + 1):
        one.observe(second, int(LIFE.at(second / speed) * size))
    return one


def remaining(one: Running) -> float:
    """Return the seconds that it will still run by the speeds that are believed."""
    speeds = list(one.believed())
    return one.curve.duration * sum(speeds) / len(speeds) - one.elapsed_s


def test_nothing_seen_is_as_predicted() -> None:
    """Before the first look the prediction is what is likely."""
    one = Running("x.cu.o", LIFE)
    assert one.outlook(10).likely == LIFE.cells(10)
    assert remaining(one) == pytest.approx(240, rel=0.02)


def test_exact_stays_exact() -> None:
    """A compile that goes as predicted is predicted as it goes."""
    one = watched(100)
    assert remaining(one) == pytest.approx(140, rel=0.03)
    assert one.outlook(10).likely == pytest.approx(LIFE.cells(10, 100), rel=1e-6)


@pytest.mark.parametrize("speed", [0.83, 1.17, 1.8, 3.0])
def test_a_slower_one_is_stretched(speed: float) -> None:
    """Its phases are recognised, and the later ones are expected at that speed."""
    one = watched(int(70 * speed), speed)
    assert remaining(one) == pytest.approx(170 * speed, rel=0.12)


@pytest.mark.parametrize("size", [0.8, 1.3])
def test_a_larger_one_is_scaled(size: float) -> None:
    """What held more so far will hold more at its peak."""
    ahead = watched(40, size=size).outlook(5)
    assert max(ahead.likely) == pytest.approx(3 * GIB * size, rel=0.12)


def test_looks_make_sure() -> None:
    """The longer a compile was looked at, the less margin its peak needs."""
    before, after = outlook(LIFE, 5), watched(45).outlook(5)
    assert max(after.variance) < max(before.variance) / 2


def test_never_less_than_it_holds() -> None:
    """What a compile holds now is held now, whatever was predicted."""
    one = Running("x.cu.o", LIFE, 100, 5 * GIB)
    one.observe(101, 6 * GIB)
    ahead = one.outlook(5)
    assert min(ahead.likely[0], ahead.mean[0], ahead.worst[0]) >= 6 * GIB


def test_one_that_outlives_its_prediction() -> None:
    """It is believed to go on holding what it holds for some time."""
    one = Running("x.cu.o", Curve.flat(10, GIB), 100, 2 * GIB)
    assert not one.believed()
    ahead = one.outlook(4)
    assert ahead.likely == [2 * GIB] * 5
    assert min(ahead.variance) > 0


def test_a_guess_is_an_upper_bound_until_it_is_passed() -> None:
    """The kind's peak is kept; more than that is kept with a tenth above it."""
    guess = Curve.flat(60, 3 * GIB)
    assert outlook(guess, 10, False).variance == [0.0] * 6
    small = Running("x", guess, 30, GIB, known=False)
    assert small.outlook(10).likely == [3 * GIB] * 3
    big = Running("x", guess, 30, 4 * GIB, known=False)
    big.observe(31, GIB)
    assert big.outlook(10).mean[0] == pytest.approx(4.4 * GIB)
    assert big.outlook(10) is big.outlook(10)
