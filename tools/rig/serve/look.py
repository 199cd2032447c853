# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One look at a running server: what it is, what it does, and in which state."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.rig.base.errors import RigError
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu
from tools.rig.serve import cards, ending, listening, members, ports, probe, states
from tools.rig.serve import record as records
from tools.rig.serve.counting import Seen, count, limit
from tools.rig.serve.listening import Listener, Who
from tools.rig.serve.members import Member
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import Facts, State

PROBE_S = 20.0
"""Seconds that the completion of a deep look may take."""

_COMPILERS = frozenset(
    {"cc1plus", "cicc", "clang", "cudafe++", "g++", "gcc", "ld", "nvcc", "ptxas"}
)
"""What a server starts to compile the kernels of a request that is the first of its
kind; counters stand still for that long."""


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
    before = there
    health, wrong, seen = 0, "", Seen(None, None, 0.0, None, True)
    port = listening.look(record) if alive else Listener(Who.NOBODY)
    if alive and port.who is not Who.OTHERS:
        answer = probe.health(record, limit(deep))
        health = answer.status
        key, wrong = probe.key_for(record)
        # a key is for the server alone, and not for whoever answers in its place
        key = key if port.trusted else ""
        asks = deep and (health == 200 or (ready and not health))
        seen = count(record, key, probe_s if asks else 0.0)
        # what a signal stopped shows that only after a moment
        before, there = there, members.note(record)
    said = seen.said
    facts = Facts(
        alive=alive,
        was_ready=ready,
        stopping=record.being_stopped,
        end="" if alive else _ended(record),
        orphans=tuple(_named(m) for m in there if m.role != "keeper"),
        health=health,
        probe=None if said is None else said.problem,
        timed_out=said is not None and said.timed_out,
        refused=said is not None and said.refused,
        key=probe.key_fault(record, wrong, said if port.trusted else None),
        moved=seen.moved,
        used_cpu=seen.used_cpu,
        starved=seen.starved,
        compiling=tuple(_named(m) for m in before if m.name in _COMPILERS)
        or tuple(_named(m) for m in there if m.name in _COMPILERS),
        stopped=tuple(_named(m) for m in there if m.state in "Tt"),
        missing=_missing(record, there) if alive else (),
        stranger=port.words if port.who is Who.OTHERS else "",
        unproved="" if port.trusted else port.words,
    )
    state, reason = states.judge(facts)
    age = _last_token(record, seen)
    if alive:
        records.save_seen(root, record)
    now = seen.last
    return replace(
        _status(record, state, reason),
        # a clock may be set back
        uptime_s=max(0.0, time.time() - record.started) if alive else 0.0,
        processes=[asdict(member) for member in there],
        cards=cards.use(record.cards, (m.pid for m in there), gpus),
        running=now.running if now else None,
        waiting=now.waiting if now else None,
        kv=now.kv if now else None,
        tokens_per_s=_rate(seen),
        last_token_s=age,
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
        try:
            results[at] = look(
                root, record, deep=deep, probe_s=probe_s, gpus=lambda: seen
            )
        except Exception as exc:
            # one that cannot be looked at must neither be missing from the list nor
            # keep the others out of it
            results[at] = unknown(record, exc)

    threads = [
        threading.Thread(target=one, args=pair, daemon=True)
        for pair in enumerate(found)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[at] for at in sorted(results)]


def unknown(record: ServerRecord, exc: Exception) -> ServerStatus:
    """Return the status of a server that could not be looked at."""
    why = exc.what if isinstance(exc, RigError) else f"{type(exc).__name__}: {exc}"
    status = _status(record, State.UNKNOWN, f"it cannot be looked at: {why}")
    return replace(status, notes=[f"hint: less {shlex.quote(record.log)}"])


def _status(record: ServerRecord, state: State, reason: str) -> ServerStatus:
    """Return what a record tells by itself."""
    return ServerStatus(
        name=record.name,
        state=state,
        reason=reason,
        model=record.model,
        served_name=record.served_name,
        version=record.version,
        environment=record.environment,
        pid=record.pid,
        address=ports.joined(record.host, record.port),
        uptime_s=0.0,
        processes=[],
        cards=[],
        log=record.log,
    )


def _rate(seen: Seen) -> float | None:
    made = [c.generated if c else None for c in (seen.first, seen.last)]
    if made[0] is None or made[1] is None or seen.seconds <= 0:
        return None
    return max(0.0, made[1] - made[0]) / seen.seconds


def _last_token(record: ServerRecord, seen: Seen) -> float | None:
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


def _ended(record: ServerRecord) -> str:
    if not record.this_boot:
        return "this machine was booted since"
    return ending.how(record)


def _missing(record: ServerRecord, there: Sequence[Member]) -> tuple[str, ...]:
    found = []
    for role, wanted in sorted(record.roles.items()):
        now = sum(1 for member in there if member.role == role)
        if now < wanted and role in ("engine", "worker"):
            found.append(f"{wanted - now} of {wanted} {role} process(es) gone")
        if now < wanted and role == "keeper":
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
