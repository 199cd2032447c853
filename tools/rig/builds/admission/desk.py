# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who waits, who runs, and who starts next: the state of the admission service.

Knows nothing of sockets, and time is given to it: what it decides can be replayed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.builds.admission import policy, predictions
from tools.rig.builds.admission.budget import Budget
from tools.rig.builds.admission.predictions import Expected, Predictions
from tools.rig.builds.admission.running import Running
from tools.rig.host.processes import start_time

_GROWN = 1.1
"""Of what a compile held when memory ran out under it: it is needed at least."""

PATIENCE_S = 30.0
"""Seconds that a build waits with nothing of its own running before it gets a place
beside those of the cores: a compile can hold its core for a quarter of an hour."""

_ALONE_AFTER = 2
"""A compile under which memory ran out so often gets all of it."""


@dataclass(eq=False)
class Compile:
    """One compile of some build; times are CLOCK_MONOTONIC seconds."""

    name: str
    build: str
    expected: Expected
    asked: float
    cap: int = 0
    needs: int = 0
    kills: int = 0
    child: int = 0
    child_start: int | None = None
    owner: int = 0
    started: float | None = None
    running: Running | None = None

    @property
    def held(self) -> int:
        """Bytes that it was last seen to hold."""
        return self.running.bytes if self.running else 0

    def waiting(self) -> policy.Waiting:
        """Return what the policy is told of it while it waits."""
        curve = self.expected.curve
        if self.needs > curve.peak:
            curve = curve.scaled(size=self.needs / max(1, curve.peak))
        return policy.Waiting(
            self.name, curve, self.asked, self.expected.known, self.kills > 0
        )

    def start(self, now: float, held: int = 0) -> None:
        """Note that it runs since `now`."""
        curve, known = self.waiting().curve, self.expected.known
        self.started = now
        self.running = Running(self.name, curve, bytes=held, known=known)


@dataclass
class Desk:
    """Gives out room.

    Parameters
    ----------
    budget
        What all compiles together may hold.
    cores
        Processors, and so the most compiles at once.
    load
        Reads predictions from a file.
    born
        Says when a process was started, None when it is gone.
    """

    budget: Budget
    cores: int
    load: Callable[[Path], Predictions] = Predictions.load
    born: Callable[[int], int | None] = start_time
    compiles: dict[int, Compile] = field(default_factory=dict)
    orphans: list[Compile] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    _served: dict[str, float] = field(default_factory=dict)
    _known: dict[str, tuple[float, Predictions]] = field(default_factory=dict)

    def ask(self, line: int, told: Mapping[str, Any], now: float) -> None:
        """Take in a compile that waits, or one that an earlier service let run.

        Parameters
        ----------
        line
            Its connection.
        told
            Its own words.
        now
            CLOCK_MONOTONIC seconds.
        """
        name = predictions.key_of(str(told.get("object", "")), str(told.get("cwd", "")))
        one = Compile(
            name,
            str(told.get("build", "")),
            self._expected(name, told),
            _number(told.get("asked"), now),
            int(_number(told.get("cap"), 0)),
            int(_number(told.get("needs"), 0) * _GROWN),
        )
        one.kills = int(_number(told.get("kills"), 0))
        one.owner = int(_number(told.get("owner"), 0))
        self.compiles[line] = one
        if told.get("started") is not None:
            # a clock that all processes of the machine share
            started = min(now, _number(told.get("started"), now))
            self._begin(one, started)
            self.use(line, told, now)

    def use(self, line: int, told: Mapping[str, Any], now: float) -> None:
        """Take in what a compile holds."""
        one = self.compiles.get(line)
        if one is None or one.running is None or one.started is None:
            return
        child = int(_number(told.get("child"), 0))
        if child != one.child:
            one.child, one.child_start = child, self.born(child)
        one.running.observe(now - one.started, int(_number(told.get("bytes"), 0)))

    def ran_out(self, line: int, told: Mapping[str, Any]) -> None:
        """Memory ran out under a compile: there is less than was believed."""
        self.budget.killed()
        one = self.compiles.get(line)
        if one is not None:
            one.kills += 1
            one.needs = max(one.needs, int(_number(told.get("bytes"), 0) * _GROWN))
            one.started = one.running = None

    def end(self, line: int, told: Mapping[str, Any]) -> None:
        """Free the room of a compile that is done."""
        one = self.compiles.pop(line, None)
        if one is not None:
            self.done[one.build] = self.done.get(one.build, 0) + 1
            if told.get("cache") == "hit":
                self.hits[one.build] = self.hits.get(one.build, 0) + 1

    def gone(self, line: int) -> None:
        """Note that a launcher died; the room of its compiler is not free yet."""
        one = self.compiles.pop(line, None)
        if one is not None and one.running and one.child_start is not None:
            self.orphans.append(one)

    def look(self) -> None:
        """Look at the machine and correct the budget; once a second."""
        self.orphans = [o for o in self.orphans if self.born(o.child) == o.child_start]
        self.budget.correct(self.used)

    @property
    def used(self) -> int:
        """Bytes that all compiles were last seen to hold."""
        return sum(one.held for one in self._running())

    def decide(self, now: float) -> list[int]:
        """Return the connections whose compiles start now.

        Builds take turns: the one with the fewest compiles comes first, and of such the
        one that was served longest ago. Otherwise the short compiles of a small build
        would wait for all the long ones of a big one.
        """
        started: list[int] = []
        while not any(one.kills >= _ALONE_AFTER for one in self._running()):
            turns = self._turns()
            chosen = next(filter(None, (self._chosen(lines) for lines in turns)), [])
            if not chosen and turns:
                chosen = self._chosen(turns[0], self._guests(turns[0], now))
            for line in chosen:
                self._begin(self.compiles[line], now)
            started += chosen
            if not chosen:
                break
        return started

    def _begin(self, one: Compile, now: float) -> None:
        one.start(now)
        self._served[one.build] = max(now, self._served.get(one.build, 0.0))

    def _turns(self) -> list[list[int]]:
        """Return who may start now, and who may when none of those does."""
        count = {one.build: self._count(one.build) for one in self.compiles.values()}
        free: dict[str, list[int]] = {}
        for line, one in self.compiles.items():
            if one.running is None and not (one.cap and count[one.build] >= one.cap):
                free.setdefault(one.build, []).append(line)
        if not free:
            return []
        oldest = {b: min(self.compiles[ln].asked for ln in free[b]) for b in free}
        # a build that was never served comes before all that were
        first = min(
            free, key=lambda b: (count[b], self._served.get(b, -math.inf), oldest[b], b)
        )
        # a build of which nothing runs is not passed by: its turn comes as others end
        if count[first] == 0 or len(free) == 1:
            return [free[first]]
        return [free[first], [line for lines in free.values() for line in lines]]

    def _guests(self, lines: Sequence[int], now: float) -> int:
        """Return for how many compiles beyond the cores a build has waited enough.

        The cores are shared then, which slows the others down a little; memory is asked
        as always. One build alone never gets more than the cores.
        """
        running = self._running()
        build = self.compiles[lines[0]].build
        patient = now - min(self.compiles[line].asked for line in lines) >= PATIENCE_S
        full = self.cores <= len(running) < 2 * self.cores
        alone = all(one.build == build for one in self.compiles.values())
        if not (patient and full) or alone or self._count(build):
            return 0
        return len(running) + 1 - self.cores

    def _chosen(self, lines: Sequence[int], guests: int = 0) -> list[int]:
        """Return which of some compiles start: of several builds one, then we see."""
        asking = [(line, self.compiles[line].waiting()) for line in lines]
        running = [one.running for one in self._running() if one.running]
        budget, cores = self.budget.bytes, self.cores + guests
        looked = [one for _, one in asking]
        chosen = policy.choose(running, policy.pressing(looked), budget, cores)
        line_of = {id(asked): line for line, asked in asking}
        found = [line_of[id(one)] for one in chosen]
        builds = {one.build for one in self.compiles.values() if one.running is None}
        caps = [self.compiles[line].cap for line in found]
        return found[:1] if len(builds) > 1 or any(caps) else found

    def status(self, now: float) -> dict[str, Any]:
        """Return everything that people want to see."""
        running = self._running()
        caps = {one.cap for one in self.compiles.values() if one.cap}
        return {
            "budget": self.budget.bytes,
            "used": self.used,
            "reserved": policy.reserved([o.running for o in running if o.running]),
            "lowered": self.budget.lowered,
            "psi": self.budget.psi,
            "cap": min(caps, default=None),
            "cores": self.cores,
            "done": sum(self.done.values()),
            "done_of": self.done,
            "hits": sum(self.hits.values()),
            "hits_of": self.hits,
            "running": [self._shown(one, now) for one in running],
            "waiting": [
                self._shown(one, now)
                for one in self.compiles.values()
                if one.running is None
            ],
        }

    def _running(self) -> list[Compile]:
        here = [one for one in self.compiles.values() if one.running]
        return [*here, *self.orphans]

    def _count(self, build: str) -> int:
        return sum(one.build == build for one in self._running())

    def _expected(self, name: str, told: Mapping[str, Any]) -> Expected:
        file = str(told.get("predictions") or "")
        kind = str(told.get("kind", ""))
        if kind == "cuda" and predictions.kind_of(name) == "gemm":
            kind = "gemm"
        return self._predictions(file).predict(name, kind)

    def _predictions(self, file: str) -> Predictions:
        if not file:
            return Predictions()
        try:
            written = os.stat(file).st_mtime
        except OSError:
            return Predictions()
        known = self._known.get(file)
        if known is None or known[0] != written:
            known = self._known[file] = (written, self.load(Path(file)))
        return known[1]

    @staticmethod
    def _shown(one: Compile, now: float) -> dict[str, Any]:
        curve = one.expected.curve
        since = one.asked if one.started is None else one.started
        return {
            "object": one.name,
            "build": one.build,
            "pid": one.owner,
            "seconds": round(max(0.0, now - since), 1),
            "bytes": one.held,
            "expected_s": round(curve.duration, 1),
            "expected_peak": curve.peak,
            "known": one.expected.known,
        }


def _number(value: Any, otherwise: float) -> float:
    """Return a number of at least 0 out of a message, which may hold anything."""
    good = isinstance(value, (int, float)) and 0 <= value < math.inf
    return value if good else otherwise
