# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which waiting compiles start now."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.running import Outlook, Running, outlook

__all__ = ["Running", "Waiting", "choose", "expected_seconds", "pressing", "reserved"]

_MOST_PLANNED = 48
"""Compiles that are planned with at once; the time of a plan grows with their square
(10 ms for these on two cores, 200 ms for two hundred, measured)."""
_CELLS = 256
_SIGMAS = 2.4
"""How many standard deviations stay free: errors of single compiles are independent, so
the margin is the root of the sum of their squares and not their sum."""
_LATER = 0.94
"""Part of the budget that is planned with for later: by then less is unsure."""
_WEIGHTS = (0.0, 0.3, 0.6, 1.0)
"""Orders that are tried: by seconds times peak to this power, the largest first."""


@dataclass(frozen=True)
class Waiting:
    """One compile that asks for room.

    Parameters
    ----------
    key
        Name of the object.
    curve
        What it is predicted to hold.
    since
        When it asked, in seconds of any clock; earlier ones go first among equals.
    known
        Whether the prediction was measured.
    urgent
        First in line: it was killed for want of memory once.
    """

    key: str
    curve: Curve
    since: float = 0.0
    known: bool = True
    urgent: bool = False


def choose(
    running: Sequence[Running],
    waiting: Sequence[Waiting],
    budget_bytes: int,
    cores: int,
    cap: int | None = None,
) -> list[Waiting]:
    """Return the waiting compiles to start now, in order.

    Parameters
    ----------
    running
        What runs, with what it holds.
    waiting
        What asks.
    budget_bytes
        What all together may hold.
    cores
        Processors: never more compiles than that.
    cap
        The user's own limit; None without one.

    Notes
    -----
    The curves of all that runs are walked forward together, and a plan is made for all
    that waits: each in turn gets the earliest start at which its curve, laid over what
    is planned so far, stays below the budget to its end. Several turns are tried, and
    the plan that ends first tells what starts now, provided that it stays below the
    budget with a margin for what is not sure. What fits only alone comes last, and one
    compile always runs, whatever it takes.
    """
    places = max(1, min(cores, cap or cores))
    if places <= len(running) or not waiting:
        return []
    step = _step(running, waiting)
    ground = _Ground([one.outlook(step) for one in running], budget_bytes)
    looks = [(one, outlook(one.curve, step, one.known)) for one in waiting]
    fit, alone = _parted(looks, budget_bytes)
    if killed := [one for one in alone if one.urgent]:
        # it was killed once, and fits only alone: that is waited for
        return [] if running else [min(killed, key=_first)]
    started: list[Waiting] = []
    able = any(ground.takes(look) for _, look in fit)
    for one, look in _best(ground, fit, places, step).now if able else ():
        if len(running) + len(started) >= places:
            break
        if ground.takes(look):
            ground.add(look)
            started.append(one)
        elif one.urgent:
            # nobody passes it, or it would wait for the last
            break
    if not running and not started:
        return [min([one for one, _ in fit] or alone, key=_first)]
    return started


def pressing(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Return those that matter now: urgent or long, and small ones for the gaps."""
    order = [*waiting]
    if len(order) <= _MOST_PLANNED:
        return order
    order.sort(key=lambda one: (not one.urgent, -one.curve.duration, one.since))
    gaps = _MOST_PLANNED // 4
    long, rest = order[: _MOST_PLANNED - gaps], order[_MOST_PLANNED - gaps :]
    return [*long, *sorted(rest, key=lambda one: one.curve.peak)[:gaps]]


def expected_seconds(
    waiting: Sequence[Waiting], budget_bytes: int, cores: int, cap: int | None = None
) -> float:
    """Return how long all that waits will take when nothing else runs.

    That is the end of the plan that :func:`choose` begins with, and the time of what
    fits only alone after it.
    """
    step = _step((), waiting)
    looks = [(one, outlook(one.curve, step, one.known)) for one in waiting]
    fit, alone = _parted(looks, budget_bytes)
    places = max(1, min(cores, cap or cores))
    end = _best(_Ground([], budget_bytes), fit, places, step).end
    return end + sum(one.curve.duration for one in alone)


def reserved(running: Sequence[Running]) -> int:
    """Return the most bytes that what runs will hold, with the margin."""
    step = _step(running, ())
    ground = _Ground([one.outlook(step) for one in running], 0)
    cells = zip(ground.mean, ground.variance, ground.worst)
    return int(max((min(m + _SIGMAS * v**0.5, w) for m, v, w in cells), default=0))


class _Ground:
    """What runs, laid over each other from now on."""

    def __init__(self, looks: list[Outlook], budget: int) -> None:
        self.budget = float(budget)
        self.likely: list[float] = []
        self.mean: list[float] = []
        self.variance: list[float] = []
        self.worst: list[float] = []
        self.count: list[int] = []
        for look in looks:
            self.add(look)

    def add(self, look: Outlook) -> None:
        """Lay one more on top."""
        missing = [0.0] * (len(look.mean) - len(self.mean))
        self.likely += missing
        self.mean += missing
        self.variance += missing
        self.worst += missing
        self.count += [0] * len(missing)
        for cell, size in enumerate(look.likely):
            self.likely[cell] += size
        for cell, (mean, variance) in enumerate(zip(look.mean, look.variance)):
            self.mean[cell] += mean
            self.variance[cell] += variance
            self.worst[cell] += look.worst[cell]
            self.count[cell] += 1

    def takes(self, look: Outlook) -> bool:
        """Say whether one more stays below the budget, as predicted and with margin."""
        sums = itertools.zip_longest(look.likely, self.likely, fillvalue=0.0)
        if any(size and size + below > self.budget for size, below in sums):
            return False
        margin, count = _SIGMAS * _SIGMAS, len(self.mean)
        for cell, mean in enumerate(look.mean):
            left, unsure = self.budget - mean, look.variance[cell]
            if cell < count:
                left -= self.mean[cell]
                unsure += self.variance[cell]
            if left < 0 or left * left < margin * unsure:
                below = self.worst[cell] if cell < count else 0.0
                if below + look.worst[cell] > self.budget:
                    return False
        return True


def _parted(
    looks: list[tuple[Waiting, Outlook]], budget: int
) -> tuple[list[tuple[Waiting, Outlook]], list[Waiting]]:
    """Return what can run beside others, and what fits into no plan and runs alone."""
    empty, fit, alone = _Ground([], budget), [], []
    for one, look in looks:
        if max(look.likely, default=0.0) <= _LATER * budget and empty.takes(look):
            fit.append((one, look))
        else:
            alone.append(one)
    return fit, alone


def _best(
    ground: _Ground, fit: list[tuple[Waiting, Outlook]], places: int, step: float
) -> _Plan:
    """Return the plan that ends first, and of such the one that is done early."""
    plans = []
    for weight in _WEIGHTS:
        plan = _Plan(ground, places)
        for one, look in sorted(fit, key=lambda pair: _turn(pair[0], weight)):
            plan.place(one, look, step)
        plans.append(plan)
    return min(plans, key=lambda plan: plan.cost)


class _Plan:
    """A start for each that waits, the earliest that those before it leave."""

    def __init__(self, ground: _Ground, places: int) -> None:
        self.now: list[tuple[Waiting, Outlook]] = []
        self.end = 0.0
        self._area = self._weighed_ends = 0.0
        self._all = ground.budget * _LATER
        self._places = places
        self._room = [self._all - size for size in ground.likely]
        self._free = [places - count for count in ground.count]

    def place(self, one: Waiting, look: Outlook, step: float) -> None:
        sizes, room, free = look.likely, self._room, self._free
        count = len(sizes)
        start, tight = 0, -1
        while True:
            # where it was too tight a moment ago it most often still is
            if tight >= start and sizes[tight - start] > room[tight]:
                start += 1
                continue
            if start + count > len(room):
                room += [self._all] * count
                free += [self._places] * count
            for at in range(start + count - 1, start - 1, -1):
                if sizes[at - start] > room[at] or free[at] <= 0:
                    tight = at
                    break
            else:
                break
            start += 1
        for at, size in enumerate(sizes, start):
            room[at] -= size
            free[at] -= 1
        end = start * step + one.curve.duration
        self.end = max(self.end, end)
        self._area += one.curve.area
        self._weighed_ends += one.curve.area * end
        if start == 0:
            self.now.append((one, look))

    @property
    def cost(self) -> float:
        """Seconds to the end, and a part of those to the mean end by memory-time."""
        return self.end + 0.5 * self._weighed_ends / max(1.0, self._area)


def _turn(one: Waiting, weight: float) -> tuple[bool, float, float, str]:
    """Return what sorts the waiting: long ones first, large ones more or less so."""
    peak = max(1.0, one.curve.peak)
    return not one.urgent, -one.curve.duration * peak**weight, one.since, one.key


def _first(one: Waiting) -> tuple[bool, float, float, str]:
    return _turn(one, 0)


def _step(running: Sequence[Running], waiting: Sequence[Waiting]) -> float:
    """Return the seconds of one stretch: a power of two, so that outlooks are kept."""
    lives = [one.curve.duration for one in running]
    lives += [one.curve.duration for one in waiting]
    longest, step = max(lives, default=1.0) * 1.25, 1.0
    while longest / step > _CELLS:
        step *= 2
    return step
