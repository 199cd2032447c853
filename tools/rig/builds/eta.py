# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""When a build will be ready: an earlier build's durations, at this build's speed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Stage: TypeAlias = Mapping[str, float]
"""What one ninja made earlier: output to seconds, in the order of their starts."""

MEMORY = 1.0
"""Share of a build's work after which what was seen of the speed counts 1/e."""

TRUST = 0.01
"""Share of a build's work for which the speed of the earlier build is taken as seen."""

FEW = 3
"""Outputs that must be ready before anything is said without an earlier build."""

HIT = 0.1
"""What took less than this share of what was expected came from the compile cache."""

USUAL = {"cuda": 100.0, "cxx": 15.0, "link": 2.0}
"""Seconds where nothing is known; means of the fork's record (two cores, nvcc 12.4)."""

_SWING = 0.05  # of a new sample in the mean of what runs at once
_LATE = 0.1  # of what something should take, left when it takes longer
_ODD = 0.25  # of the outputs, ready out of order: it is not that order
_WHOLE = 0.9  # of the outputs of a ninja: less is a build of what was changed


def stages(
    objects: Iterable[Mapping[str, Any]],
    measured: Callable[[str], float | None] = lambda _: None,
) -> list[dict[str, float]]:
    """Return what each ninja of a recorded build made, from the record's ``objects``.

    The record has one ninja after the other, and each counts from its own start: where
    both times fall, the next one begins.

    Parameters
    ----------
    measured
        Returns an output's own seconds. What ninja's log has includes the time that a
        compile waited for room.
    """
    found: list[list[tuple[float, float, str]]] = []
    last = (math.inf, math.inf)
    for one in objects:
        times = float(one["start_s"]), float(one["end_s"])
        if times[0] < last[0] and times[1] < last[1]:
            found.append([])
        last = times
        found[-1].append((*times, str(one["output"])))
    return [
        {
            name: end - start if (own := measured(name)) is None else own
            for start, end, name in sorted(stage)
        }
        for stage in found
    ]


def kind(name: str) -> str:
    """Return ``cuda``, ``cxx`` or ``link``."""
    if name.endswith((".cu.o", ".cuda.o")):
        return "cuda"
    return "cxx" if name.endswith((".o", ".obj")) else "link"


class Eta:
    """Follows a build and says how long it still takes.

    Times are seconds of one clock that only goes forward.

    Parameters
    ----------
    known
        The ninjas of an earlier build, in their order (see :func:`stages`).
    expected
        Returns the seconds of an output that the earlier build did not make, or None.
    jobs
        Outputs that are made at once, as long as :meth:`status` does not tell.
    """

    def __init__(
        self,
        known: Sequence[Stage] = (),
        expected: Callable[[str], float | None] = lambda _: None,
        jobs: int = 1,
    ) -> None:
        self.known = [dict(stage) for stage in known]
        self.expected = expected
        self.jobs = float(max(1, jobs))
        self.told = False
        self.hits = 0
        self._times = {n: s for stage in self.known for n, s in stage.items()}
        self._bases: dict[str, list[str]] = {}
        for name in self._times:
            self._bases.setdefault(_base(name), []).append(name)
        self._later = list(range(len(self.known)))
        self._share = 1.0
        self._order: list[str] = []
        self._waiting: list[str] = []
        self._running: list[str] = []
        self._begun: dict[str, float] = {}
        self._ready: set[str] = set()
        self._seen: list[tuple[float, float]] = []
        self._found = False
        self._wrong = 0
        self._start = 0.0
        self._last: float | None = None
        self._done = self._total = 0

    def output(self, now: float) -> None:
        """Say that the build said something: a ninja begins after such a line."""
        if not self._total or self._done == self._total:
            self._last = now

    def finished(self, name: str, done: int, total: int, now: float) -> None:
        """Take one ``[done/total]`` line of ninja."""
        key = self.key(name)
        if total != self._total or done <= self._done:
            self._open(total, now if self._last is None else self._last)
        if not self._found:
            self._recognise(key)
        self._done, self._last = done, now
        self._ready.add(key)
        if key in self._order:
            self._order.remove(key)
        if key in self._running:
            self._running.remove(key)
        elif self._running and not self.told:
            # what was taken for the youngest has not been begun yet
            wrong = self._running.pop()
            self._begun.pop(wrong)
            self._order.insert(0, wrong)
            self._wrong += 1
            if not self._is_like_before():
                # another order: nobody knows what runs, and what took how long
                self._order = [*self._running, *self._order]
                self._running.clear()
                self._begun.clear()
                self._seen.clear()
        if key in self._begun:
            self._learn(key, now - self._begun.pop(key))
        self._suppose(now)

    def status(self, running: Mapping[str, float], waiting: Sequence[str]) -> None:
        """Take what is really running, with the times it was begun, and what waits."""
        if not self.told:
            self._begun.clear()
        self.told = True
        now = {self.key(name): began for name, began in running.items()}
        # what has ended keeps its time until ninja's line is here
        self._begun.update(now)
        self._running = [key for key in now if key not in self._ready]
        self._waiting = [key for key in map(self.key, waiting) if key not in now]
        if now and waiting:
            # it swings with what is compiled; the mean is what is to come
            self.jobs += (len(now) - self.jobs) * _SWING
        else:
            self.jobs = max(self.jobs, float(len(now)))

    def left(self, now: float) -> float | None:
        """Return the seconds that are left, or None while nobody can know."""
        todo = self._total - self._done
        if not self._total or (not self._found and self._done < FEW):
            return None
        speed = self.speed(now)
        ends = [self._rest(key, speed, now) for key in self._running[:todo]]
        seconds = _schedule(ends, [s * speed for s in self._todo(todo)], self.jobs)
        for stage in self._later if self._found else ():
            times = [s * speed for s in self.known[stage].values()]
            seconds += self._share * _schedule([], times, self.jobs)
        return seconds

    def speed(self, now: float) -> float:
        """Return how many seconds what should take one second takes here, lately."""
        work = sum(self._times.values())
        trust = TRUST * work if self._found else 0.0
        took = meant = trust
        age, memory = 0.0, max(MEMORY * work, 1.0)
        for took_one, meant_one in reversed(self._seen):
            weight = math.exp(-age / memory)
            took += weight * took_one
            meant += weight * meant_one
            age += meant_one
        if self.told:
            speed = took / meant if meant > 0 else 1.0
            for key in self._running:
                spent, should = now - self._begun[key], self.seconds(key)
                if spent > speed * should:
                    # less would only say that it still runs
                    took, meant = took + spent, meant + should
        if meant > trust:
            return took / meant
        meant = sum(self.seconds(key) for key in self._ready)
        few = self._found and self._done < 2 * self.jobs
        if meant <= 0 or few or self._is_like_before():
            return 1.0
        return (now - self._start) * self.jobs / meant

    def seconds(self, key: str) -> float:
        """Return what an output should take at the speed of the earlier build."""
        known = self._times.get(key)
        if known is None:
            known = self.expected(key)
        return USUAL[kind(key)] if known is None else known

    def key(self, name: str) -> str:
        """Return an output's name in the earlier build: paths begin elsewhere now."""
        if name in self._times:
            return name
        for key in self._bases.get(_base(name), ()):
            if name.endswith(f"/{key}") or key.endswith(f"/{name}"):
                return key
        return name

    def _open(self, total: int, start: float) -> None:
        """Begin with the next ninja."""
        self._start, self._total = start, total
        self._running, self._order, self._waiting = [], [], []
        self._found = False

    def _recognise(self, key: str) -> None:
        """Find the ninja of the earlier build that made the same."""
        for i in self._later:
            if key in self.known[i]:
                self._found = True
                self._order = [k for k in self.known[i] if k not in self._ready]
                self._later = [later for later in self._later if later > i]
                self._share = min(1.0, self._total / len(self.known[i]))
                self._suppose(self._start)
                return

    def _suppose(self, now: float) -> None:
        """Suppose that ninja begins as it did, while nobody tells what is running."""
        if self.told or not self._is_like_before():
            return
        while self._order and len(self._running) < round(self.jobs):
            key = self._order.pop(0)
            self._running.append(key)
            self._begun[key] = now

    def _is_like_before(self) -> bool:
        """Say whether the same is made in the same order as in the earlier build."""
        few = self._wrong <= max(FEW, _ODD * self._done)
        return self._found and self._share >= _WHOLE and few

    def _learn(self, key: str, took: float) -> None:
        if kind(key) == "link":
            # it may have waited for what it links
            return
        meant = self.seconds(key)
        if took < HIT * meant:
            self.hits += 1
        else:
            self._seen.append((took, meant))

    def _rest(self, key: str, speed: float, now: float) -> float:
        meant = self.seconds(key) * speed
        return max(meant - (now - self._begun[key]), _LATE * meant)

    def _todo(self, count: int) -> list[float]:
        """Return what is neither ready nor running should take, at most `count`."""
        busy = {*self._running, *self._ready}
        named = [k for k in self._waiting if k not in busy]
        others = [k for k in self._order if k not in busy and k not in named]
        count -= len(self._running)
        # the admission begins with the longest of those that wait
        times = sorted(map(self.seconds, named), reverse=True)[: max(0, count)]
        count -= len(times)
        rest = [self.seconds(key) for key in others]
        if rest and count < len(rest):
            # only some of them are made again, and nobody tells which
            rest = [sum(rest) / len(rest)] * max(0, count)
        elif count > len(rest):
            rest += [self._mean()] * (count - len(rest))
        fresh = 1 - self.hits / max(1, self.hits + len(self._seen))
        return [s * fresh for s in times + rest]

    def _mean(self) -> float:
        if self._found:
            # what an earlier build did not have is small: a link, a generated file
            return USUAL["link"]
        return sum(map(self.seconds, self._ready)) / max(1, len(self._ready))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _schedule(running: Iterable[float], todo: Iterable[float], jobs: float) -> float:
    """Return when all is ready if whatever gets free takes the next."""
    lanes = sorted(running)
    lanes = [0.0] * max(0, math.ceil(jobs) - len(lanes)) + lanes
    end, work = max(lanes, default=0.0), sum(lanes)
    for seconds in todo:
        work += seconds
        end = max(end, heapq.heappushpop(lanes, lanes[0] + seconds) + seconds)
    # a mean of 7.4 lanes is slower than 8
    return max(end, work / jobs)
