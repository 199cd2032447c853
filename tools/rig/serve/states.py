# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""In which state a server is, judged from facts alone."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(str, enum.Enum):
    """What a server does, seen from a client."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEGRADED = "degraded"
    HUNG = "hung"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Facts:
    """What is known of a server.

    Attributes
    ----------
    alive
        Whether the API server runs.
    was_ready
        Whether it ever was.
    stopping
        Whether it was told to stop.
    end
        How it ended, in words; empty where nobody knows.
    orphans
        Processes of a dead server that live on.
    health
        The status of ``/health``; 0: no answer.
    probe
        Why no sane token came out; empty: one did; None: nobody asked.
    timed_out
        Whether the probe ran out of time.
    refused
        Whether the probe was refused (a wrong key) and so says nothing.
    key
        What is wrong with the file of its key; empty: nothing, or it has none.
    moved
        Whether the counters of work grew during the probe; None: they could not be
        read.
    used_cpu
        Whether its processes used the processor meanwhile.
    starved
        Whether they waited for this machine for so long that standing still proves
        nothing.
    compiling
        Compilers that it runs.
    stopped
        Processes that a signal stopped.
    missing
        What should be there and is not.
    stranger
        Who else has its port, in words; empty: nobody.
    unproved
        Why it cannot be told whether it was the server that answered; empty: it was, or
        nobody answered.
    """

    alive: bool
    was_ready: bool = True
    stopping: bool = False
    end: str = ""
    orphans: tuple[str, ...] = ()
    health: int = 200
    probe: str | None = None
    timed_out: bool = False
    refused: bool = False
    key: str = ""
    moved: bool | None = None
    used_cpu: bool = True
    starved: bool = False
    compiling: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    stranger: str = ""
    unproved: str = ""


def judge(facts: Facts) -> tuple[State, str]:
    """Return the state and the reason.

    A server is hung when a completion ran out of time *and* its counters stood still
    all the while; when it does not tell its counters either, its processes must have
    stood still, or be stopped. A busy server moves, or is kept from moving by others or
    by its own compilers, and is never called hung.
    """
    if not facts.alive:
        left = f"{', '.join(facts.orphans)} left behind" if facts.orphans else ""
        return State.DEAD, "; ".join(filter(None, [facts.end, left]))
    if facts.stopping:
        return State.DRAINING, "it was told to stop"
    stopped = (
        f"stopped by a signal: {', '.join(facts.stopped)}" if facts.stopped else ""
    )
    if facts.stranger:
        return State.DEGRADED, "; ".join(filter(None, [facts.stranger, stopped]))
    if facts.timed_out and _still(facts):
        words = f"{facts.probe}, and nothing moved meanwhile"
        return State.HUNG, "; ".join(filter(None, [words, stopped]))
    if not facts.was_ready and facts.health != 200:
        return State.STARTING, stopped
    busy = facts.timed_out and bool(facts.moved or facts.compiling)
    problems = [stopped, *facts.missing]
    # a token, or counters that moved, say more than a page that came late
    late = facts.health == 0 and (facts.probe == "" or busy or facts.moved)
    if facts.health == 503:
        problems.append("/health says 503: its engine is dead")
    elif facts.health != 200 and not late:
        problems.append(
            f"/health says {facts.health}" if facts.health else "/health is silent"
        )
    if facts.key:
        said = f": {facts.probe}" if facts.refused else ""
        problems.append(f"not probed: {facts.key}{said}")
    if facts.probe and not facts.refused:
        problems.append(facts.probe + _why_late(facts))
    problems = [problem for problem in problems if problem]
    if facts.unproved and not problems:
        return State.UNKNOWN, facts.unproved
    if busy and len(problems) == 1:
        return State.READY, problems[0]
    if problems:
        return State.DEGRADED, "; ".join(problems)
    if facts.refused:
        return State.READY, f"not probed: {facts.probe}"
    return State.READY, ""


def _why_late(facts: Facts) -> str:
    if not facts.timed_out:
        return ""
    if facts.moved:
        return " although it works: it is busy"
    if facts.compiling:
        return f": it compiles kernels ({', '.join(facts.compiling)})"
    return ": this machine is too busy to tell why" if facts.starved else ""


def _still(facts: Facts) -> bool:
    if facts.stopped and not facts.moved:
        return True
    if facts.starved or facts.compiling:
        return False
    return not facts.used_cpu if facts.moved is None else not facts.moved
