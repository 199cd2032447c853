# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A compile that runs: its prediction, corrected by what it was seen to hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from tools.rig.builds.admission.curves import Curve

SPEEDS = tuple(1.05**power for power in range(-4, 5))
"""How many times as long as predicted a compile may take, before it is looked at."""
_FINE = tuple(1.0175**power for power in range(-13, 14))
SLOWER = tuple(1.12**power for power in range(3, 14))
"""Tried as well once a compile runs: another load can make it four times as long."""
SPREAD = 0.12
"""Standard deviation of real memory over predicted memory, before it is looked at."""
_WORST = 1.8
_SURE = 0.02
_STRANGE = 0.15
_LOOKS_LIKE = 0.02


@dataclass(frozen=True)
class Outlook:
    """Bytes in each coming stretch of time.

    ``likely`` is the one life that is most likely; ``mean`` is over all that may be,
    and ``variance`` the square of the standard deviation; ``worst`` is what no life
    exceeds.
    """

    likely: list[float]
    mean: list[float]
    variance: list[float]
    worst: list[float]


@lru_cache(maxsize=4096)
def outlook(curve: Curve, step: float, known: bool = True) -> Outlook:
    """Return the outlook of a compile that starts now.

    Parameters
    ----------
    curve
        What it is predicted to hold.
    step
        Seconds of one stretch.
    known
        Whether that was measured; a guess by kind of source is an upper bound, which
        gets no margin above it.
    """
    if not known:
        cells = curve.cells(step)
        return Outlook(cells, cells, [0.0] * len(cells), cells)
    lives = [_stretched(curve, k).cells(step) for k in SPEEDS]
    return Outlook(curve.cells(step), *_mixed(lives, SPREAD))


@lru_cache(maxsize=4096)
def _stretched(curve: Curve, speed: float) -> Curve:
    return curve.scaled(seconds=speed)


@dataclass(eq=False)
class Running:
    """One running compile.

    Parameters
    ----------
    key
        Name of the object.
    curve
        What it was predicted to hold.
    elapsed_s
        Seconds since it started.
    bytes
        What it and its children hold now.
    pid
        Its process, for messages.
    known
        Whether the prediction was measured.

    Notes
    -----
    Keep one of these for each compile and call :meth:`observe` with each look: the
    history says how fast the compile really goes and how large it really is. Its
    prediction is compared with what was seen at several speeds, each with the size that
    fits it best (least squares); the speeds that fit about as well as the best one are
    believed.
    """

    key: str
    curve: Curve
    elapsed_s: float = 0.0
    bytes: int = 0
    pid: int = 0
    known: bool = True
    highest: int = field(default=0, init=False)
    _outlook: tuple[float, Outlook] | None = field(default=None, init=False)
    _fits: dict[float, _Fit] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        prior = (0.3 * self.curve.peak) ** 2 + 1
        self._fits = {k: _Fit(prior) for k in (*_FINE, *SLOWER)}
        if self.elapsed_s > 0:
            self.observe(self.elapsed_s, self.bytes)

    def observe(self, elapsed_s: float, size: int) -> None:
        """Take in one look at what the compile holds."""
        self.elapsed_s, self.bytes = elapsed_s, size
        self.highest = max(self.highest, size)
        self._outlook = None
        for speed, fit in self._fits.items():
            fit.add(self.curve.at(elapsed_s / speed), size)

    def believed(self) -> dict[float, _Fit]:
        """Return the speeds that agree with what was seen, the best one first."""
        alive = [k for k in self._fits if self.curve.duration * k > self.elapsed_s]
        usual = [k for k in alive if k < SLOWER[0]] or alive
        if not usual:
            return {}
        miss = {k: self._fits[k].miss for k in alive}
        if min(miss[k] for k in usual) > _STRANGE:
            usual = alive
        least = min(miss[k] for k in usual)
        good = [k for k in usual if miss[k] <= least + _LOOKS_LIKE]
        good.sort(key=lambda k: (round(miss[k], 6), abs(math.log(k))))
        return {k: self._fits[k] for k in good}

    def outlook(self, step: float) -> Outlook:
        """Return what it will hold from now on; made once for each look at it."""
        if self._outlook is None or self._outlook[0] != step:
            self._outlook = (step, self._ahead(step))
        return self._outlook[1]

    def _ahead(self, step: float) -> Outlook:
        believed = self.believed()
        if not self.known or not believed:
            return self._blind(step)
        best = next(iter(believed))
        lives = {}
        for speed in sorted({best, max(believed), min(believed)}):
            cells = _stretched(self.curve, speed).cells(step, self.elapsed_s)
            lives[speed] = [size * believed[speed].size for size in cells]
        seen = min(1.0, self.elapsed_s / max(1.0, 0.15 * self.curve.duration))
        spread = SPREAD + seen * (max(_SURE, believed[best].miss / 2) - SPREAD)
        mean, variance, worst = _mixed([*lives.values()], spread)
        likely = lives[best]
        for sizes in (likely, mean, worst):
            sizes[0] = max(sizes[0], self.bytes)
        return Outlook(likely, mean, variance, worst)

    def _blind(self, step: float) -> Outlook:
        """Return the outlook of a compile that no measured curve tells of.

        A guess by kind holds its peak to the end, or what was seen and a tenth when
        that is more; one that outlived its prediction goes on as it is.
        """
        most = max(self.highest * 1.1, float(self.curve.peak))
        size = float(self.bytes) if self.known else most
        left = max(self.curve.duration - self.elapsed_s, 0.2 * self.elapsed_s, step)
        cells = [size] * math.ceil(left / step)
        unsure = (0.1 * size) ** 2 if self.known else 0.0
        return Outlook(cells, cells, [unsure] * len(cells), [1.2 * size] * len(cells))


class _Fit:
    """How well a prediction at one speed agrees with what was seen."""

    def __init__(self, prior: float) -> None:
        self._xx = self._xy = self._yy = prior

    def add(self, predicted: float, seen: float) -> None:
        self._xx += predicted * predicted
        self._xy += predicted * seen
        self._yy += seen * seen

    @property
    def size(self) -> float:
        """How many times as large as predicted the compile is."""
        return self._xy / self._xx

    @property
    def miss(self) -> float:
        """What is left unexplained: root mean square over that of what was seen."""
        rest = self._yy - self._xy * self._xy / self._xx
        return math.sqrt(max(0.0, rest) / self._yy)


def _mixed(
    lives: list[list[float]], spread: float
) -> tuple[list[float], list[float], list[float]]:
    """Return mean, variance and the worst of lives that are equally likely."""
    if len(lives) == 1:
        (only,) = lives
        top, square = 1 + _WORST * spread, spread * spread
        return [*only], [b * b * square for b in only], [b * top for b in only]
    count = max(len(cells) for cells in lives)
    padded = [cells + [0.0] * (count - len(cells)) for cells in lives]
    means, variances, worst = [], [], []
    for sizes in zip(*padded):
        mean = sum(sizes) / len(sizes)
        apart = sum(size * size for size in sizes) / len(sizes) - mean * mean
        means.append(mean)
        worst.append(max(sizes) * (1 + _WORST * spread))
        variances.append(max(0.0, apart) + (spread * mean) ** 2)
    return means, variances, worst
