# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Replays a recorded build on any number of cores and with any memory.

A build is a list of steps, each with the life it really has and the steps it needs.
Three ways to order it: fixed jobs in ninja's order, cores only (which is fixed jobs,
as many as there are cores), and the admission of the suite, which sees predictions and
what runs, and never the real lives. Time goes from event to event; nothing is random.

Not modelled: the machine slows down when memory gets short or when more runs than it
has cores; disks; what a compile cache answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.rig.builds.admission import policy
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Expected

LOOK_S = 5.0
"""Seconds between two looks of the service at what runs; the real one looks oftener."""


@dataclass(frozen=True)
class Step:
    """One step of a build: its life, what it needs, and whether admission is asked."""

    key: str
    life: Curve
    needs: frozenset[str] = frozenset()
    link: bool = False


@dataclass
class Outcome:
    """When each step began, in seconds, and what came of it."""

    starts: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak: float = 0.0


@dataclass(frozen=True)
class Bound:
    """What no order can beat, in seconds."""

    longest: float
    memory: float
    work: float

    @property
    def seconds(self) -> float:
        """The strictest of them."""
        return max(self.longest, self.memory, self.work)


def bound(steps: Sequence[Step], budget: int, cores: int) -> Bound:
    """Return the lower bounds of a build on so many cores and so many bytes."""
    return Bound(
        max(step.life.duration for step in steps),
        sum(step.life.area for step in steps) / budget,
        sum(step.life.duration for step in steps) / cores,
    )


def fixed(steps: Sequence[Step], jobs: int) -> Outcome:
    """Replay with a fixed number of jobs, in the order given."""
    replay = _Replay(steps)
    while replay.goes_on():
        for step in replay.ready()[: jobs - len(replay.running)]:
            replay.start(step)
        replay.forward()
    return replay.outcome()


def admitted(
    steps: Sequence[Step],
    expected: Mapping[str, Expected],
    budget: int,
    cores: int,
    cap: int | None = None,
    jobs: int = 1 << 30,
    look_s: float = LOOK_S,
) -> Outcome:
    """Replay with the suite's admission.

    Parameters
    ----------
    steps
        In ninja's order.
    expected
        What the admission thinks of each compile.
    budget, cores, cap
        As for :func:`policy.choose`.
    jobs
        How many steps ninja starts at once: so many can wait to be admitted.
    look_s
        Seconds between two looks.
    """
    replay = _Replay(steps)
    seen: dict[str, policy.Running] = {}
    asked: dict[str, policy.Waiting] = {}
    while replay.goes_on():
        for step in replay.ready():
            if len(replay.running) + len(asked) >= jobs:
                break
            if step.link:
                replay.start(step)
            elif step.key not in asked:
                one = expected[step.key]
                asked[step.key] = policy.Waiting(
                    step.key, one.curve, len(asked), one.known
                )
        for key in [key for key in seen if key not in replay.running]:
            del seen[key]
        for key, one_seen in seen.items():
            elapsed = replay.now - replay.starts[key]
            if elapsed > one_seen.elapsed_s:
                one_seen.observe(elapsed, int(replay.steps[key].life.at(elapsed)))
        chosen = policy.choose([*seen.values()], [*asked.values()], budget, cores, cap)
        for waiting in chosen:
            del asked[waiting.key]
            replay.start(replay.steps[waiting.key])
            seen[waiting.key] = policy.Running(
                waiting.key, waiting.curve, known=waiting.known
            )
        replay.forward(look_s if asked else None)
    return replay.outcome()


class _Replay:
    """The clock, what runs and what may run."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = {step.key: step for step in steps}
        self.now = 0.0
        self.starts: dict[str, float] = {}
        self.running: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._left = {step.key: set(step.needs) for step in steps}

    def goes_on(self) -> bool:
        return bool(self._left or self.running)

    def ready(self) -> list[Step]:
        return [self.steps[key] for key, needs in self._left.items() if not needs]

    def start(self, step: Step) -> None:
        del self._left[step.key]
        self.running.add(step.key)
        self.starts[step.key] = self.now
        heapq.heappush(self._ends, (self.now + step.life.duration, step.key))

    def forward(self, most: float | None = None) -> None:
        """Go to the next end, at most so many seconds."""
        until = self._ends[0][0]
        if most is not None and self.now + most < until:
            self.now += most
            return
        self.now = until
        while self._ends and self._ends[0][0] <= self.now:
            _, key = heapq.heappop(self._ends)
            self.running.discard(key)
            for needs in self._left.values():
                needs.discard(key)

    def outcome(self) -> Outcome:
        lives = [(at, self.steps[key].life) for key, at in self.starts.items()]
        return Outcome(self.starts, self.now, highest(lives))


def highest(lives: Sequence[tuple[float, Curve]]) -> float:
    """Return the most bytes that lives with these starts ever hold together.

    The sum of straight lines is highest where one of them ends, so it is enough to look
    there, on both sides of a jump.
    """
    turns: list[tuple[float, float, float]] = []
    for start, life in lives:
        first = (0.0, life.points[0][1])
        points = [first, *life.points] if life.points[0][0] > 0 else [*life.points]
        for (t1, b1), (t2, b2) in zip(points, points[1:]):
            slope = (b2 - b1) / (t2 - t1)
            turns.append((start + t1, b1, slope))
            turns.append((start + t2, -b2, -slope))
    turns.sort(key=lambda turn: turn[0])
    top = total = slope_now = then = 0.0
    for at, jump, slope in turns:
        total += slope_now * (at - then)
        top = max(top, total)
        total += jump
        slope_now += slope
        then = at
    return top
