# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is written down of a server, so that it is found again and told from others.

One JSON file a server below the state root, beside its log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tools.rig.base.errors import RigError, StepFailed, UsageError
from tools.rig.base.state import StateRoot, read_json, write_json
from tools.rig.host import processes
from tools.rig.serve.plan import ServePlan

TOKEN = "RIG_SERVER"
"""Variable in the environment of everything that belongs to a server."""

_SEEN = ("members", "shm", "sample")

_KINDS: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "str": str,
    "float": (int, float),
    "list": list,
    "dict": dict,
    "None": type(None),
}

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
        The leader of its session, which is ours alone. 0: it shares somebody else's
        session, and only the processes in `members` are its own.
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
    baseline: dict[str, Any]
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
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where we reach it: a server that listens everywhere also listens here."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(
            self.host, self.host
        )

    @property
    def end(self) -> Path:
        """The file that says how it ended."""
        return Path(self.log).with_suffix(".end")

    @property
    def this_boot(self) -> bool:
        """Whether its numbers still mean anything."""
        return self.boot_id == processes.boot_id()

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Broken:
    """A file that should be a record and is none; the server may run all the same."""

    name: str
    file: Path
    problem: str

    @property
    def hint(self) -> str:
        """What puts it out of the way."""
        quoted = shlex.quote(os.fspath(self.file))
        return f"mv {quoted} {shlex.quote(f'{self.file}.broken')}"


def folder(root: StateRoot) -> Path:
    """Return the folder of all servers' records and logs."""
    return root.path / "servers"


def path_of(root: StateRoot, name: str) -> Path:
    """Return a server's file.

    Raises
    ------
    UsageError
        When the name cannot be the name of a file.
    """
    # with a dash in front it could not be typed behind --name
    if not name or name[0] in ".-" or "/" in name or "\n" in name:
        raise UsageError(
            f"a server cannot be called {name!r}",
            hint="choose letters, digits, dots and dashes: --name qwen",
        )
    return folder(root) / f"{name}.json"


def save(root: StateRoot, record: ServerRecord) -> None:
    """Write a record; only who starts or stops a server does.

    Raises
    ------
    StepFailed
        When the disk does not take it.
    """
    root.make(folder(root))
    write_json(path_of(root, record.name), record.to_json())


def save_seen(root: StateRoot, record: ServerRecord) -> None:
    """Write what was seen of a running server beside its record, if that is possible.

    A file of its own, so that who looks never writes over who stops.
    """
    seen = {name: getattr(record, name) for name in _SEEN}
    with contextlib.suppress(RigError):
        write_json(_seen_path(root, record.name), {"token": record.token, **seen})


def load(root: StateRoot, name: str) -> ServerRecord | None:
    """Return a server's record, or None.

    Raises
    ------
    StepFailed
        When the file is broken, or is no record of that server.
    """
    file = path_of(root, name)
    data = read_json(file)
    if data is None and not file.exists():
        return None
    record = _parsed(data)
    if record is None or record.name != name:
        problem = f"cannot read {file}: it is no record of the server {name}"
        raise StepFailed(problem, hint=Broken(name, file, problem).hint)
    with contextlib.suppress(RigError):
        seen = read_json(_seen_path(root, name))
        if isinstance(seen, Mapping) and seen.get("token") == record.token:
            plain = {**record.to_json(), **{n: seen[n] for n in _SEEN if n in seen}}
            record = _parsed(plain) or record
    return record


def listing(root: StateRoot) -> list[ServerRecord]:
    """Return the records of all servers by name; see `broken` for the other files."""
    return _sorted_out(root)[0]


def broken(root: StateRoot) -> list[Broken]:
    """Return the files that should be records and cannot be read as such, by name."""
    return _sorted_out(root)[1]


def remove(root: StateRoot, record: ServerRecord) -> None:
    """Forget a server; its log stays."""
    seen = _seen_path(root, record.name)
    for file in (path_of(root, record.name), seen, record.end):
        with contextlib.suppress(OSError):
            file.unlink()


def of_plan(plan: ServePlan, token: str, started: float) -> ServerRecord:
    """Return the record of a server that is about to start."""
    return ServerRecord(
        name=plan.name,
        model=os.fspath(plan.model),
        served_name=plan.served_name,
        pid=0,
        start_ticks=0,
        session=0,
        session_ticks=0,
        boot_id=processes.boot_id(),
        uid=os.getuid(),
        token=token,
        port=plan.port,
        host=plan.host,
        cards=[*plan.cards],
        baseline={},
        environment=os.fspath(plan.environment),
        log=os.fspath(plan.log),
        started=started,
        api_key_file=os.fspath(plan.api_key_file) if plan.api_key_file else None,
        drain_s=plan.drain_s,
        plan=plan.to_json(),
    )


def _sorted_out(root: StateRoot) -> tuple[list[ServerRecord], list[Broken]]:
    found, bad = [], []
    for file in sorted(folder(root).glob("*.json")):
        try:
            record = load(root, file.stem)
        except UsageError:
            # no server of ours can have that name
            continue
        except RigError as exc:
            bad.append(Broken(file.stem, file, exc.what))
            continue
        if record is not None:
            found.append(record)
    return found, bad


def _seen_path(root: StateRoot, name: str) -> Path:
    return path_of(root, name).with_suffix(".seen")


def _parsed(data: object) -> ServerRecord | None:
    if not isinstance(data, Mapping):
        return None
    known = {f.name for f in fields(ServerRecord)}
    try:
        record = ServerRecord(**{k: v for k, v in data.items() if k in known})
        record.members = [(int(pid), int(ticks)) for pid, ticks in record.members]
    except (TypeError, ValueError):
        return None
    fits = (_fits(getattr(record, f.name), str(f.type)) for f in fields(record))
    return record if all(fits) else None


def _fits(value: object, declared: str) -> bool:
    """Say whether a value is of the kind that a field was declared with."""
    kinds = [kind.partition("[")[0].strip() for kind in declared.split("|")]
    return any(isinstance(value, _KINDS[kind]) for kind in kinds)
