# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One look at a running server: what it is, what it does, and in which state."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.base.idle import session_activity
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu
from tools.rig.serve import cards, life, members, metrics, probe, states
from tools.rig.serve import record as records
from tools.rig.serve.members import Member
from tools.rig.serve.metrics import Counters
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import Facts, State

PROBE_S = 20.0
"""Seconds that the completion of a deep look may take."""

STILL_S = 5.0
"""Seconds that counters must have stood still at the least: a step may be long."""

WINDOW_S = 0.35
"""Seconds between the two counts of a quick look."""

_QUICK_S = 0.4
_SAMPLE_S = 0.5


@dataclass(frozen=True)
class ServerStatus:
    """What one look at a server found; None is unknown everywhere.

    ``last_token_s`` is how many seconds ago it made its last token, at the most where
    tokens came since the look before; ``kv`` is between 0 and 1.
    """

    name: str
    state: State
    reason: str
    model: str
    served_name: str
    version: str
    environment: str
    pid: int
    address: str
    uptime_s: float
    processes: list[dict[str, Any]]
    cards: list[cards.CardUse]
    running: int | None = None
    waiting: int | None = None
    kv: float | None = None
    tokens_per_s: float | None = None
    last_token_s: float | None = None
    log: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether somebody should do something."""
        fine = (State.STARTING, State.READY, State.DRAINING)
        return self.state not in fine

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "state": self.state.value}


@dataclass
class _Seen:
    """What was counted during a look."""

    first: Counters | None
    last: Counters | None
    seconds: float
    moved: bool | None
    used_cpu: bool
    said: probe.Completion | None = None


def look(
    root: StateRoot,
    record: ServerRecord,
    *,
    deep: bool = True,
    probe_s: float = PROBE_S,
    gpus: cards.Ask = gpu.read,
) -> ServerStatus:
    """Look at a server; what cannot be found out is unknown, and nothing is changed.

    Parameters
    ----------
    deep
        Have a token made. Without it counters are read, and a hang is not seen.
    probe_s
        Seconds that the token may take.
    gpus
        Reads the cards.
    """
    there = members.note(record)
    alive = members.api_alive(record)
    ready = record.ready is not None
    health, wrong, seen = 0, "", _Seen(None, None, 0.0, None, True)
    if alive:
        answer = probe.health(record, probe_s if deep and probe_s < 2 else _limit(deep))
        health = answer.status
        key, wrong = probe.key_for(record)
        asks = deep and (health == 200 or (ready and not health))
        seen = _count(record, key, probe_s if asks else 0.0)
        # what a signal stopped shows that only after a moment
        there = members.note(record)
    said = seen.said
    facts = Facts(
        alive=alive,
        was_ready=ready,
        stopping=bool(record.state_of_stop),
        end="" if alive else _end(record),
        orphans=tuple(_named(m) for m in there if m.role != "keeper"),
        health=health,
        probe=None if said is None else said.problem,
        timed_out=said is not None and said.timed_out,
        refused=said is not None and said.refused,
        key=probe.key_fault(record, wrong, said) if alive else "",
        moved=seen.moved,
        used_cpu=seen.used_cpu,
        stopped=tuple(_named(m) for m in there if m.state in "Tt"),
        missing=_missing(record, there) if alive else (),
    )
    state, reason = states.judge(facts)
    age = _last_token(record, seen)
    if alive:
        records.save_seen(root, record)
    now = seen.last
    return ServerStatus(
        name=record.name,
        state=state,
        reason=reason,
        model=record.model,
        served_name=record.served_name,
        version=record.version,
        environment=record.environment,
        pid=record.pid,
        address=f"{record.host}:{record.port}",
        uptime_s=time.time() - record.started if alive else 0.0,
        processes=[asdict(member) for member in there],
        cards=cards.use(record.cards, (m.pid for m in there), gpus),
        running=now.running if now else None,
        waiting=now.waiting if now else None,
        kv=now.kv if now else None,
        tokens_per_s=_rate(seen),
        last_token_s=age,
        log=record.log,
    )


def look_at_all(
    root: StateRoot,
    found: Sequence[ServerRecord],
    *,
    deep: bool = True,
    probe_s: float = PROBE_S,
) -> list[ServerStatus]:
    """Look at several servers at the same time; the cards are read once."""
    need = any(record.cards for record in found)
    seen = gpu.read() if need else gpu.Gpus("absent")
    results: dict[int, ServerStatus] = {}

    def one(at: int, record: ServerRecord) -> None:
        results[at] = look(root, record, deep=deep, probe_s=probe_s, gpus=lambda: seen)

    threads = [
        threading.Thread(target=one, args=pair, daemon=True)
        for pair in enumerate(found)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[at] for at in sorted(results)]


def _count(record: ServerRecord, key: str, probe_s: float) -> _Seen:
    """Count for a moment, or for as long as a completion takes."""
    limit = _limit(probe_s > 0)
    start = time.monotonic()
    first = metrics.read(record, limit)
    busy = session_activity(record.session)[0] if record.session else 0
    said: list[probe.Completion] = []
    thread = threading.Thread(
        target=lambda: said.append(probe.completion(record, timeout=probe_s, key=key)),
        daemon=True,
    )
    last, moved = first, False
    if probe_s > 0:
        thread.start()
        thread.join(_SAMPLE_S)
        while thread.is_alive() or _too_early(said, moved, start):
            last = metrics.read(record, limit) or last
            moved = moved or _grew(first, last)
            thread.join(_SAMPLE_S)
            time.sleep(0 if thread.is_alive() else _SAMPLE_S / 5)
        if said and said[0].ok:
            # its own token counts as well
            last = metrics.read(record, limit) or last
    elif first is not None:
        time.sleep(WINDOW_S)
        last = metrics.read(record, limit) or first
        moved = _grew(first, last)
    known = first is not None and first.work is not None
    used = session_activity(record.session)[0] > busy if record.session else True
    return _Seen(
        first=first,
        last=last,
        seconds=time.monotonic() - start,
        moved=moved if known else None,
        used_cpu=used,
        said=said[0] if said else None,
    )


def _too_early(said: list[probe.Completion], moved: bool, start: float) -> bool:
    """Say whether a completion ran out of time before a hang could be told."""
    late = bool(said) and said[0].timed_out
    return late and not moved and time.monotonic() - start < STILL_S


def _limit(deep: bool) -> float:
    return 2.0 if deep else _QUICK_S


def _grew(first: Counters | None, last: Counters | None) -> bool:
    if first is None or last is None or first.work is None or last.work is None:
        return False
    return last.work > first.work


def _rate(seen: _Seen) -> float | None:
    made = [c.generated if c else None for c in (seen.first, seen.last)]
    if made[0] is None or made[1] is None or seen.seconds <= 0:
        return None
    return max(0.0, made[1] - made[0]) / seen.seconds


def _last_token(record: ServerRecord, seen: _Seen) -> float | None:
    """Return the age of the newest token, from this look and the one before."""
    if seen.first is None or seen.last is None or seen.last.generated is None:
        return None
    now, made, before = time.time(), seen.last.generated, record.sample
    grew = seen.first.generated is not None and made > seen.first.generated
    since = now if grew else record.ready or record.started
    if not grew and before:
        same = before.get("made") == made
        # tokens came between the looks: not before the earlier one
        since = before.get("since", now) if same else before.get("at", now)
    record.sample = {"at": now, "made": made, "since": since}
    return max(0.0, now - since)


def _end(record: ServerRecord) -> str:
    if not record.this_boot:
        return "this machine was booted since"
    return life.how_it_ended(record)


def _missing(record: ServerRecord, there: Sequence[Member]) -> tuple[str, ...]:
    found = []
    for role, count in sorted(record.roles.items()):
        now = sum(1 for member in there if member.role == role)
        if now < count and role in ("engine", "worker"):
            found.append(f"{count - now} of {count} {role} process(es) gone")
        if now < count and role == "keeper":
            found.append("its keeper is gone: its log stands still")
    try:
        room = os.statvfs(Path(record.log).parent)
        if room.f_bavail == 0:
            found.append("the disk of its log is full")
    except OSError:
        found.append("the folder of its log cannot be reached")
    return tuple(found)


def _named(member: Member) -> str:
    return f"PID {member.pid} ({member.name})"
