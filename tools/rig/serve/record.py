# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is written down of a server, so that it is found again and told from others.

One JSON file a server below the state root, beside its log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base import daemon
from tools.rig.base.errors import RigError, StepFailed, UsageError, put_aside
from tools.rig.base.state import StateRoot, write_json
from tools.rig.host import processes
from tools.rig.serve import record_file
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.server import (
    DRAINING,
    LONGEST_NAME,
    STOPPING,
    TOKEN,
    Identity,
    ServerRecord,
    parsed,
)

__all__ = ["DRAINING", "STOPPING", "TOKEN", "Identity", "ServerRecord"]

_SEEN = ("members", "shm", "sample")


@dataclass(frozen=True)
class Broken:
    """A file that should be a record and is none; the server may run all the same."""

    name: str
    file: Path
    problem: str

    @property
    def hint(self) -> str:
        """What puts it out of the way."""
        return put_aside(self.file, ".broken")


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
    if not name or name[0] in ".-" or "/" in name or not name.isprintable():
        raise UsageError(
            f"a server cannot be called {name!r}",
            hint="choose letters, digits, dots and dashes: --name qwen",
        )
    if len(name.encode()) > LONGEST_NAME:
        raise UsageError(
            f"the name of the server is longer than {LONGEST_NAME} bytes",
            hint="choose a short one: --name qwen",
        )
    return folder(root) / f"{name}.json"


def save(root: StateRoot, record: ServerRecord) -> None:
    """Write the record of a server that was just started, whatever was there before.

    Raises
    ------
    StepFailed
        When the disk does not take it.
    """
    root.make(folder(root))
    with record_file.alone(folder(root)):
        write_json(path_of(root, record.name), record.to_json())


def update(root: StateRoot, record: ServerRecord, *names: str) -> bool:
    """Change the record of this server; False where it is not there any more.

    By then another server may have the name, and its record is none of our business.

    Parameters
    ----------
    names
        The fields that are changed; others may have been by somebody else meanwhile.

    Raises
    ------
    StepFailed
        When what is there cannot be read, or the disk does not take it.
    """
    with record_file.alone(folder(root)):
        there = _written(root, record.name)
        if there is None or there.token != record.token:
            return False
        changed = {name: getattr(record, name) for name in names}
        write_json(path_of(root, record.name), {**there.to_json(), **changed})
    return True


def save_seen(root: StateRoot, record: ServerRecord) -> None:
    """Write what was seen of a running server beside its record, if that is possible.

    A file of its own, so that who looks never writes over who stops.
    """
    seen = {name: getattr(record, name) for name in _SEEN}
    with contextlib.suppress(RigError), record_file.alone(folder(root)):
        if _stands(root, record):
            write_json(_seen_path(root, record.name), {"token": record.token, **seen})


def load(root: StateRoot, name: str) -> ServerRecord | None:
    """Return a server's record, or None.

    Raises
    ------
    StepFailed
        When the file is broken, or is no record of that server.
    """
    record = _written(root, name)
    if record is None:
        return None
    with contextlib.suppress(RigError):
        seen = record_file.read(_seen_path(root, name))
        if isinstance(seen, Mapping) and seen.get("token") == record.token:
            plain = {**record.to_json(), **{n: seen[n] for n in _SEEN if n in seen}}
            record = parsed(plain) or record
    return record


def listing(root: StateRoot) -> list[ServerRecord]:
    """Return the records of all servers by name; see `broken` for the other files."""
    return _sorted_out(root)[0]


def broken(root: StateRoot) -> list[Broken]:
    """Return the files that should be records and cannot be read as such, by name."""
    return _sorted_out(root)[1]


def remove(root: StateRoot, record: ServerRecord) -> None:
    """Forget this server, and no later one of its name; its log stays."""
    seen = _seen_path(root, record.name)
    with contextlib.suppress(RigError), record_file.alone(folder(root)):
        if not _stands(root, record):
            return
        ended = daemon.how_it_ended(record.end) is not None
        # the name comes out of a file: only what a keeper wrote is a keeper's
        ends = [record.end] if ended else []
        for file in (path_of(root, record.name), seen, *ends):
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


def _written(root: StateRoot, name: str) -> ServerRecord | None:
    """Return the record as it was written, without what was seen later."""
    file = path_of(root, name)
    data = record_file.read(file)
    if data is None and not file.exists():
        return None
    record = parsed(data)
    if record is None or record.name != name:
        problem = f"cannot read {file}: it is no record of the server {name}"
        raise StepFailed(problem, hint=Broken(name, file, problem).hint)
    return record


def _stands(root: StateRoot, record: ServerRecord) -> bool:
    """Say whether the record that is there now is that of this very server."""
    there = _written(root, record.name)
    return there is not None and there.token == record.token
