# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which waiting compiles start now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.running import Outlook, Running, outlook

__all__ = ["Running", "Waiting", "choose", "reserved"]

_CELLS = 128
_SIGMAS = 3.5
"""How many standard deviations stay free: errors of single compiles are independent, so
the margin is the root of the sum of their squares and not their sum."""


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
    The curves of all that runs are walked forward together. A compile starts when its
    own curve, laid over them from now on, stays below the budget at every moment of its
    life, with a margin for what is not sure; the longest is tried first, and what fits
    into the gaps follows. One compile always runs, whatever it takes.
    """
    places = min(cores, cap or cores) - len(running)
    if places <= 0 or not waiting:
        return []
    order = sorted(waiting, key=_longest_first)
    step = _step(running, order)
    ground = _Ground([one.outlook(step) for one in running], budget_bytes)
    started: list[Waiting] = []
    for one in order:
        if len(started) >= places:
            break
        look = outlook(one.curve, step, one.known)
        if ground.takes(look):
            ground.add(look)
            started.append(one)
        elif one.urgent:
            # nobody may pass, else it waits until the last
            break
    if not running and not started:
        return [order[0]]
    return started


def reserved(running: Sequence[Running]) -> int:
    """Return the most bytes that what runs will hold, with the margin."""
    step = _step(running, ())
    ground = _Ground([one.outlook(step) for one in running], 0)
    pairs = zip(ground.mean, ground.variance)
    return int(max((m + _SIGMAS * v**0.5 for m, v in pairs), default=0))


class _Ground:
    """What runs, laid over each other."""

    def __init__(self, looks: list[Outlook], budget: int) -> None:
        self.budget = float(budget)
        self.mean: list[float] = []
        self.variance: list[float] = []
        for look in looks:
            self.add(look)

    def add(self, look: Outlook) -> None:
        missing = len(look.mean) - len(self.mean)
        if missing > 0:
            self.mean += [0.0] * missing
            self.variance += [0.0] * missing
        for cell, (mean, variance) in enumerate(zip(look.mean, look.variance)):
            self.mean[cell] += mean
            self.variance[cell] += variance

    def takes(self, look: Outlook) -> bool:
        margin = _SIGMAS * _SIGMAS
        count = len(self.mean)
        for cell, mean in enumerate(look.mean):
            left, unsure = self.budget - mean, look.variance[cell]
            if cell < count:
                left -= self.mean[cell]
                unsure += self.variance[cell]
            if left < 0 or left * left < margin * unsure:
                return False
        return True


def _longest_first(one: Waiting) -> tuple[bool, float, float, str]:
    return not one.urgent, -one.curve.duration, one.since, one.key


def _step(running: Sequence[Running], waiting: Sequence[Waiting]) -> float:
    """Return the seconds of one stretch: a power of two, so that outlooks are kept."""
    lives = [*(one.curve.duration for one in running)]
    lives += [one.curve.duration for one in waiting]
    longest, step = max(lives, default=1.0) * 1.25, 1.0
    while longest / step > _CELLS:
        step *= 2
    return step
