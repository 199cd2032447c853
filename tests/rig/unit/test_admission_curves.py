# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The memory of one compile over its life."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.rig.builds.admission.curves import Curve

LIFE = Curve(((0, 100), (10, 200), (20, 0)))

curves = st.lists(
    st.tuples(st.floats(0, 1000, width=16), st.integers(0, 1 << 35)),
    min_size=1,
    max_size=30,
).map(Curve.of)


def test_figures() -> None:
    """Duration, peak and memory-time of a life, and what it holds at a moment."""
    assert (LIFE.duration, LIFE.peak, LIFE.area) == (20, 200, 2500)
    assert [LIFE.at(s) for s in (0, 5, 10, 15, 20, 21)] == [100, 150, 200, 100, 0, 0]
    assert Curve.flat(5, 7).cells(2) == [7, 7, 7]
    late = Curve(((4, 8), (6, 8)))
    assert (late.at(0), late.area, late.cells(2)) == (8, 48, [8, 8, 8])


def test_ahead() -> None:
    """The most from a moment on, within a horizon or to the end."""
    assert LIFE.ahead(0) == 200
    assert LIFE.ahead(0, 5) == 150
    assert LIFE.ahead(12) == pytest.approx(160)
    assert LIFE.ahead(30) == 0


def test_scaled() -> None:
    """So many times as long and as large."""
    assert LIFE.scaled(2, 3).points == ((0, 300), (20, 600), (40, 0))


@pytest.mark.parametrize("bad", [[], [[-1, 5]], [[1, -5]], [["x", 1]], [[math.nan, 1]]])
def test_no_curve(bad: list[list[float]]) -> None:
    """What cannot have been measured is refused."""
    with pytest.raises(ValueError):
        Curve.of(bad)


@settings(deadline=None)
@given(curves, st.integers(3, 12))
def test_thinned_keeps_peak_and_end(curve: Curve, count: int) -> None:
    """Fewer points, the same peak, the same time."""
    thin = curve.thinned(count)
    assert len(thin.points) <= max(count, 3)
    assert thin.peak == curve.peak
    assert thin.duration == curve.duration
    assert list(thin.points) == sorted(thin.points)


@settings(deadline=None)
@given(curves, st.floats(0.5, 50), st.floats(0, 900))
def test_cells_cover_the_curve(curve: Curve, step: float, since: float) -> None:
    """At no moment does a life hold more than the cell of that moment says."""
    cells = curve.cells(step, since)
    assert len(cells) == max(0, math.ceil((curve.duration - since) / step))
    for index, cell in enumerate(cells):
        for part in (0.01, 0.3, 0.7, 0.99):
            moment = since + (index + part) * step
            assert curve.at(moment) <= cell * (1 + 1e-9) + 1
        assert cell <= curve.peak * (1 + 1e-9)
