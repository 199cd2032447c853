# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One server, as its record tells of it."""

from __future__ import annotations

import functools
import hashlib
import os
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.host import processes
from tools.rig.serve import ports, record_file

TOKEN = "RIG_SERVER"
"""Variable in the environment of everything that belongs to a server."""

LONGEST_NAME = 120
"""Bytes of a server's name: its files have names with more in them."""

DRAINING = "draining"
STOPPING = "stopping"
"""Its requests are waited for, and after that it was told to end."""

Identity = tuple[int, int]
"""A process: its pid and when it started, in clock ticks since boot."""


@dataclass
class ServerRecord:
    """One server.

    Attributes
    ----------
    pid, start_ticks
        The API server.
    session, session_ticks
        The leader of its session, which is ours alone.
    boot_id
        Of the boot that all these numbers belong to.
    uid
        Whose it is.
    token
        Stands in the environment of its processes.
    baseline
        For each card the bytes that were used, and by which pids, before it started.
    members
        Its processes when they were last looked at.
    shm
        Files in /dev/shm that they mapped then, with their inodes.
    roles
        How many processes of each role there were when it was ready.
    sample
        When its tokens were last counted (``at``), how many there were (``made``), and
        since when there are so many (``since``).
    started, ready
        Seconds since 1970; None: not yet.
    state_of_stop
        Empty, ``draining`` or ``stopping``.
    stopper
        The process that stops it.
    """

    name: str
    model: str
    served_name: str
    pid: int
    start_ticks: int
    session: int
    session_ticks: int
    boot_id: str
    uid: int
    token: str
    port: int
    host: str
    cards: list[int]
    baseline: dict[str, dict[str, Any]]
    environment: str
    log: str
    started: float
    version: str = ""
    api_key_file: str | None = None
    drain_s: int = 0
    roles: dict[str, int] = field(default_factory=dict)
    members: list[Identity] = field(default_factory=list)
    shm: dict[str, int] = field(default_factory=dict)
    sample: dict[str, float] = field(default_factory=dict)
    ready: float | None = None
    state_of_stop: str = ""
    stopper: Identity | None = None
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where we reach it."""
        return ports.from_here(self.host)

    @property
    def end(self) -> Path:
        """The file that says how it ended."""
        return Path(self.log).with_suffix(".end")

    @property
    def this_boot(self) -> bool:
        """Whether its numbers still mean anything."""
        return self.boot_id == processes.boot_id()

    @property
    def being_stopped(self) -> bool:
        """Whether somebody stops it now.

        A note of one that was killed over it is void: the server goes on serving.
        """
        return (
            bool(self.state_of_stop)
            and self.stopper is not None
            and self.this_boot
            and processes.alive(*self.stopper)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)


_OF_PLAN: Mapping[str, Any] = {
    "argv": list[str],
    "env": dict[str, str],
    "unset": list[str],
    "tensor": int,
}
"""What routers take out of the plan of a server."""


@functools.lru_cache(maxsize=1)
def _kinds() -> Mapping[str, Any]:
    return typing.get_type_hints(ServerRecord)


def plain_name(name: str, filler: str = "-") -> str:
    """Return a name in signs that files, units and routers of others all take.

    What is replaced or cut is told apart by a hash: names in Chinese letters would all
    look alike.

    Parameters
    ----------
    filler
        What stands for any other sign; ``_`` for dots and dashes too.
    """
    other = "[^A-Za-z0-9_]" if filler == "_" else "[^A-Za-z0-9_.-]"
    plain = re.sub(other, filler, name)
    if plain != name or len(plain) > 100:
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
        plain = f"{plain[:80]}{filler}{digest[:8]}"
    return str(plain)


def parsed(data: object) -> ServerRecord | None:
    """Return the record that the data of a file are; None where they are none."""
    if not isinstance(data, Mapping):
        return None
    kinds = _kinds()
    known = {name: value for name, value in data.items() if name in kinds}
    if not all(record_file.fits(value, kinds[name]) for name, value in known.items()):
        return None
    try:
        record = ServerRecord(**known)
    except TypeError:
        # something is missing
        return None
    record.members = [(pid, ticks) for pid, ticks in record.members]
    record.stopper = None if record.stopper is None else (*record.stopper,)
    return record if _sane(record) else None


def _sane(record: ServerRecord) -> bool:
    """Say whether what is used of a record can be used."""
    return (
        0 <= record.port <= ports.HIGHEST
        and record.host.isprintable()
        and " " not in record.host
        and os.path.isabs(record.log)
        and bool(Path(record.log).name)
        and all(map(_card_before, record.baseline.values()))
        and all(
            record_file.fits(record.plan[name], kind)
            for name, kind in _OF_PLAN.items()
            if name in record.plan
        )
    )


def _card_before(card: Mapping[str, Any]) -> bool:
    users = card.get("users") or {}
    return record_file.fits(card.get("used"), int | None) and record_file.fits(
        users, dict[str, int | None]
    )
