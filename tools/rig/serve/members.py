# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which processes belong to a server, proved and never guessed.

Never by name: they rename themselves, and another server's have the same names.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base import shared_memory
from tools.rig.base.state import StateRoot
from tools.rig.host import processes
from tools.rig.serve.record import TOKEN, Identity, ServerRecord, listing

WORKER = "VLLM::Worker"
ENGINE = "VLLM::EngineCor"
"""Names as the kernel keeps them: cut after 15 letters."""

_CUT = 15


@dataclass(frozen=True)
class Member:
    """One process of a server; ``state`` is the kernel's letter.

    ``role`` is ``api``, ``engine``, ``worker``, ``keeper`` or ``helper``.
    """

    pid: int
    ticks: int
    role: str
    name: str
    state: str
    parent: int

    @property
    def identity(self) -> Identity:
        """The pid and the start time."""
        return self.pid, self.ticks


def of(record: ServerRecord, proc: Path = processes.PROC) -> list[Member]:
    """Return a server's living processes, its keeper first.

    While the leader of its session lives and is the recorded one, all of that session
    belong to it. Without the leader the number of the session may have been used again:
    then only those count that were recorded, or carry the server's token.
    """
    if record.boot_id != processes.boot_id(proc):
        return []
    led = processes.alive(record.session, record.session_ticks, proc)
    known = set(record.members) | {(record.pid, record.start_ticks)}
    found = []
    for pid in processes.pids(proc):
        facts = processes.stat(pid, proc)
        if facts is None or not facts.running:
            continue
        in_session = facts.session == record.session
        ours = (pid, facts.start) in known or (
            in_session and (led or processes.variable(pid, TOKEN, proc) == record.token)
        )
        if ours and processes.uid(pid, proc) == record.uid:
            name = processes.name(pid, proc)
            role = _role(record, pid, name)
            title = _title(pid, name, proc)
            found.append(
                Member(pid, facts.start, role, title, facts.state, facts.parent)
            )
    return sorted(found, key=lambda m: (m.role != "keeper", m.role != "api", m.pid))


def api_alive(record: ServerRecord, proc: Path = processes.PROC) -> bool:
    """Say whether the API server still is the recorded one and runs."""
    return record.boot_id == processes.boot_id(proc) and processes.alive(
        record.pid, record.start_ticks, proc
    )


def served(root: StateRoot) -> dict[int, str]:
    """Return the server that each process of a server belongs to, by pid, in words."""
    return {
        member.pid: f"server {record.name} at port {record.port}"
        for record in listing(root)
        for member in of(record)
    }


def note(record: ServerRecord) -> list[Member]:
    """Put the processes of now, and the shared memory they map, into the record."""
    found = of(record)
    if found:
        record.members = [m.identity for m in found]
        record.shm.update(shared_memory.mapped(m.pid for m in found))
    return found


def _title(pid: int, name: str, proc: Path) -> str:
    """Return the whole of a name that a process gave itself, where it was cut."""
    if len(name) < _CUT:
        return name
    words = processes.cmdline(pid, proc)
    return words[0] if words and words[0].startswith(name) else name


def tell(members: Iterable[Member], sig: int) -> list[Member]:
    """Send a signal to those that still are who they were; return those that refuse."""
    refused = []
    for member in members:
        try:
            _send(member, sig)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.append(member)
    return refused


def _send(member: Member, sig: int) -> None:
    """Send a signal to a process that is held by a descriptor while we make sure.

    So no other one can have taken its number in between. Kernels before 5.3 have no
    such descriptors: there the look just before must do.
    """
    try:
        fd = os.pidfd_open(member.pid)
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            raise
        if processes.start_time(member.pid) == member.ticks:
            os.kill(member.pid, sig)
        return
    try:
        if processes.start_time(member.pid) == member.ticks:
            signal.pidfd_send_signal(fd, sig)
    finally:
        os.close(fd)


def _role(record: ServerRecord, pid: int, name: str) -> str:
    if pid == record.pid:
        return "api"
    if pid == record.session:
        return "keeper"
    if name.startswith(ENGINE):
        return "engine"
    return "worker" if name.startswith(WORKER) else "helper"
