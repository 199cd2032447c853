# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stopping a server: its requests, its processes, and then the memory it held."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.rig.base import daemon, shared_memory
from tools.rig.base.errors import CannotError, RigError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu, processes
from tools.rig.serve import cards, listening, members, metrics
from tools.rig.serve import record as records
from tools.rig.serve.members import Member
from tools.rig.serve.record import Identity, ServerRecord

GRACE_S = 12.0
"""Seconds between being told to stop and being killed, beside what draining takes."""

KILL_S = 4.0
MEMORY_S = 15.0
"""Seconds that the driver gets to give a card's memory back."""

_LOOK_S = 0.1
_AT_ONCE_S = 2.0
_UNTOLD = -2

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stopped:
    """What stopping a server did.

    ``ended`` and ``killed`` are pids, ``seconds`` the time until the last process was
    gone, ``memory_s`` the time from then until the memory was back; ``drained`` says
    whether its requests were to finish, and none was running when it was told to stop.
    """

    name: str
    ended: tuple[int, ...]
    killed: tuple[int, ...]
    seconds: float
    memory_s: float
    drained: bool
    cards: tuple[str, ...]
    shm_removed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def stop(
    root: StateRoot,
    record: ServerRecord,
    *,
    drain: float | None = None,
    say: Say = lambda line: None,
    ask: cards.Ask = gpu.read,
    memory_s: float = MEMORY_S,
) -> Stopped:
    """Stop a server and give everything back that it held.

    Parameters
    ----------
    drain
        Seconds that running requests get to finish; 0 aborts them; None leaves it to
        what the server was started with.
    say
        Gets words about what goes on.
    ask
        Reads the cards.
    memory_s
        Seconds that the memory may take to come back.

    Raises
    ------
    CannotError
        When it belongs to another user.
    StepFailed
        When a process or the memory of a card does not go away; names them.
    """
    start = time.monotonic()
    there = members.note(record)
    everybody = {*record.members, (record.pid, record.start_ticks)}
    if os.geteuid() not in (0, record.uid):
        # told before its requests are waited for in vain, and while it is as it was
        _refuse_others(record, there)
    try:
        record.stopper = os.getpid(), processes.start_time(os.getpid()) or 0
        record.state_of_stop = records.DRAINING
        _noted(root, record, say)
        finished = _drained(record, _own_patience(record, drain), say)
    except BaseException:
        # it goes on serving
        record.state_of_stop, record.stopper = "", None
        _noted(root, record, say)
        raise
    # from here on its end is our doing
    record.state_of_stop = records.STOPPING
    _noted(root, record, say)
    drained = finished and bool(record.drain_s if drain is None else drain)
    killed = _end(record, drain, say)
    everybody |= {*record.members}
    seconds = time.monotonic() - start
    returned = _wait_for_memory(record, everybody, ask, memory_s)
    memory_s = time.monotonic() - start - seconds
    end = daemon.how_it_ended(record.end) or {}
    removed = [str(path) for path in _list(end.get("shm_removed"))]
    if record.this_boot:
        removed += shared_memory.remove(record.shm)
    held = [one for one in returned if not one.back]
    if held:
        raise StepFailed(
            f"the server {record.name} is gone, but not all memory came back",
            details=[str(one) for one in held],
            usual="Another program may have grown on that card, or the driver keeps a "
            "context.",
            hint="nvidia-smi",
        )
    records.remove(root, record)
    return Stopped(
        name=record.name,
        ended=tuple(sorted(member.pid for member in there)),
        killed=tuple(sorted({*killed, *(int(p) for p in _list(end.get("killed")))})),
        seconds=seconds,
        memory_s=memory_s,
        drained=drained,
        cards=tuple(str(one) for one in returned),
        shm_removed=tuple(sorted(set(removed))),
    )


def _noted(root: StateRoot, record: ServerRecord, say: Say) -> None:
    """Write the record if that is possible: a full disk must not keep it running."""
    try:
        records.update(root, record, "state_of_stop", "stopper")
    except RigError as exc:
        say(f"warning: {exc.what}; stopping does not wait for that")


def _own_patience(record: ServerRecord, drain: float | None) -> float:
    """Return the seconds to wait ourselves before the server is told.

    A server that was started with a time-out of its own finishes its requests after it
    was told, and refuses new ones meanwhile, which is better.
    """
    return max(0.0, drain - record.drain_s) if drain else 0.0


def _drained(record: ServerRecord, patience: float, say: Say) -> bool:
    """Wait until nothing runs or waits; return whether that is so.

    A server that is gone, or goes meanwhile, finished nothing. One that nobody could
    reach yet, or in whose place somebody else answers, has nothing to finish.
    """
    others = listening.Who.OTHERS
    if members.api_alive(record) and listening.look(record).who is others:
        return False
    deadline = time.monotonic() + patience
    idle = 0
    told = -1
    while members.api_alive(record):
        now = metrics.read(record)
        if now is None and record.ready is None:
            return False
        if now is None or now.running is None:
            # a full server may tell late; one that never tells gets the time as well
            if time.monotonic() >= deadline:
                return False
            if told != _UNTOLD:
                told = _UNTOLD
                say("how many requests run is not told: waiting for them all the same")
            time.sleep(_LOOK_S * 2)
            continue
        busy = now.running + (now.waiting or 0)
        idle = 0 if busy else idle + 1
        # a request may be on its way between two counters
        if idle >= 2 or (not busy and patience <= 0):
            return True
        if time.monotonic() >= deadline:
            if busy and patience > 0:
                say(f"{busy} request(s) did not finish within {patience:.0f} s")
            return False
        if busy and busy != told:
            told = busy
            say(f"waiting for {busy} request(s) to finish")
        time.sleep(_LOOK_S * 2)
    return False


def _end(record: ServerRecord, drain: float | None, say: Say) -> list[int]:
    """End all processes; return those that were killed."""
    there = members.of(record)
    api = [m for m in there if m.role == "api"]
    rest = [m for m in there if m.role not in ("api", "keeper")]
    kept = any(m.role == "keeper" for m in there)
    _refuse_others(record, members.tell(api, signal.SIGTERM))
    # one that a signal stopped can neither work nor end
    members.tell([m for m in there if m.state in "Tt"], signal.SIGCONT)
    at_once = drain == 0 and record.drain_s > 0
    # who gives requests less time than the server was started with gets his way
    own = record.drain_s if drain is None else min(drain, record.drain_s)
    limit = _AT_ONCE_S if at_once else GRACE_S + own
    if not api and not kept:
        members.tell(rest, signal.SIGTERM)
    deadline = time.monotonic() + limit
    told = {m.identity for m in there} if not api else set()
    while left := _left(record):
        orphans = [m for m in left if m.role not in ("api", "keeper")]
        if not kept and not any(m.role == "api" for m in left):
            members.tell([m for m in orphans if m.identity not in told], signal.SIGTERM)
            told |= {m.identity for m in orphans}
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_S)
    if not left:
        return []
    say(f"killing {', '.join(f'PID {m.pid} ({m.name})' for m in _first(left))}")
    return _kill(record)


def _kill(record: ServerRecord) -> list[int]:
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_S
    while left := _left(record):
        first = _first(left)
        members.tell(first, signal.SIGKILL)
        killed.update(m.pid for m in first if m.role != "keeper")
        if time.monotonic() >= deadline:
            raise StepFailed(
                f"the server {record.name} does not end, even when killed",
                details=[f"PID {m.pid} {m.name}, state {m.state}" for m in left],
                usual="A process in state D hangs in the driver or on a disk.",
                hint="dmesg | tail, then reboot if it stays",
            )
        time.sleep(_LOOK_S)
    return sorted(killed)


def _first(left: list[Member]) -> list[Member]:
    """Return who is killed now: the keeper last, since it writes down how it was."""
    return [m for m in left if m.role != "keeper"] or left


def _left(record: ServerRecord) -> list[Member]:
    left = members.of(record)
    record.members = sorted({*record.members, *(m.identity for m in left)})
    # what they make while they end they may not live to remove
    record.shm.update(shared_memory.mapped(m.pid for m in left))
    return left


def _wait_for_memory(
    record: ServerRecord, everybody: set[Identity], ask: cards.Ask, limit: float
) -> list[cards.Returned]:
    if not record.this_boot:
        # the boot gave it back, and what is on the cards now came after that
        return []
    deadline = time.monotonic() + limit
    while True:
        # a number that another process has by now says nothing of the server
        own = {
            pid
            for pid, ticks in everybody
            if processes.start_time(pid) in (None, ticks)
        }
        found = cards.returned(record.cards, record.baseline, own, ask)
        if all(one.back for one in found) or time.monotonic() >= deadline:
            return found
        time.sleep(_LOOK_S)


def _refuse_others(record: ServerRecord, refused: Sequence[Member]) -> None:
    if refused:
        owner = processes.user_name(record.uid)
        raise CannotError(
            f"the server {record.name} belongs to {owner}",
            hint=f"sudo -u {shlex.quote(owner)} invoke serve-stop --name "
            f"{shlex.quote(record.name)}",
        )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
