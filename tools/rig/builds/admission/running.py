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
_SURE = 0.02
_LOOKS_LIKE = 0.02


@dataclass(frozen=True)
class Outlook:
    """Bytes in each coming stretch of time: what is likely, and how unsure that is.

    ``variance`` is the square of the standard deviation.
    """

    mean: list[float]
    variance: list[float]
    likely: list[float] = field(default_factory=list)


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
        return Outlook(cells, [0.0] * len(cells), cells)
    found = _mixed([curve.scaled(seconds=k).cells(step) for k in SPEEDS], SPREAD)
    return Outlook(found.mean, found.variance, curve.cells(step))


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
    _looks: int = field(default=0, init=False)
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
        self._looks += 1
        for speed, fit in self._fits.items():
            fit.add(self.curve.at(elapsed_s / speed), size)

    def believed(self) -> dict[float, _Fit]:
        """Return the speeds that agree with what was seen, the best one first."""
        left = {
            k: f
            for k, f in self._fits.items()
            if self.curve.duration * k > self.elapsed_s
        }
        usual = {k: f for k, f in left.items() if k < SLOWER[0]} or left
        if not usual:
            return {}
        best = min(usual.values(), key=lambda f: f.miss)
        if best.miss > 0.15:
            usual = left
            best = min(usual.values(), key=lambda f: f.miss)
        good = [k for k, f in usual.items() if f.miss <= best.miss + _LOOKS_LIKE]
        return {k: usual[k] for k in sorted(good, key=lambda k: usual[k].miss)}

    def remaining_s(self) -> float:
        """Return the seconds that it will probably still run."""
        speeds = list(self.believed())
        if not speeds:
            return 0.1 * self.elapsed_s
        return self.curve.duration * sum(speeds) / len(speeds) - self.elapsed_s

    def outlook(self, step: float) -> Outlook:
        """Return what it will hold from now on."""
        if not self.known:
            size = max(self.highest * 1.1, float(self.curve.peak))
            ahead = max(self.curve.duration - self.elapsed_s, 0.25 * self.elapsed_s)
            count = max(1, math.ceil(ahead / step))
            return Outlook([size] * count, [0.0] * count)
        believed = self.believed()
        if not believed:
            count = max(1, math.ceil(0.1 * self.elapsed_s / step))
            return Outlook(
                [float(self.bytes)] * count, [(self.bytes * 0.1) ** 2] * count
            )
        lives = []
        speeds = {next(iter(believed)), max(believed), min(believed)}
        for speed in sorted(speeds):
            cells = _stretched(self.curve, speed).cells(step, self.elapsed_s)
            lives.append([size * believed[speed].size for size in cells] or [0.0])
        seen = min(1.0, self.elapsed_s / max(1.0, 0.15 * self.curve.duration))
        best = next(iter(believed.values()))
        spread = SPREAD + seen * (max(_SURE, best.miss / 2) - SPREAD)
        found = _mixed(lives, spread)
        found.mean[0] = max(found.mean[0], self.bytes)
        return found


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


def _mixed(lives: list[list[float]], spread: float) -> Outlook:
    """Return mean and variance over lives that are equally likely."""
    if len(lives) == 1:
        return Outlook(lives[0], [(spread * size) ** 2 for size in lives[0]])
    count = max(len(cells) for cells in lives)
    padded = [cells + [0.0] * (count - len(cells)) for cells in lives]
    mean, variance = [], []
    for sizes in zip(*padded):
        middle = sum(sizes) / len(sizes)
        apart = sum(b * b for b in sizes) / len(sizes) - middle * middle
        mean.append(middle)
        variance.append(max(0.0, apart) + (spread * middle) ** 2)
    return Outlook(mean, variance)
