# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Records of builds: what reports, rollback and diagnosis read instead of guessing."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.rig.base import redact
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, read_json, write_json
from tools.rig.guard import lease


class Record:
    """One build's record, written after every step, so that a killed build has one.

    Parameters
    ----------
    root
        The state root.
    command
        What the user typed.
    """

    def __init__(self, root: StateRoot, command: str) -> None:
        self.id = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{_tail()}"
        self.file = root.make(root.records) / f"{self.id}.json"
        self.log = root.make(root.logs) / f"{self.id}.log"
        self.data: dict[str, Any] = {
            "id": self.id,
            "command": redact.text(command),
            "holder": asdict(lease.holder(command)),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "result": "running",
            "exit_code": None,
            "log": str(self.log),
            "steps": [],
        }
        self.save()

    def step(self, title: str, seconds: float, result: str) -> None:
        """Add a finished step."""
        entry = {"title": title, "seconds": round(seconds, 2), "result": result}
        self.data["steps"].append(entry)
        self.save()

    def update(self, **values: Any) -> None:
        """Add or change fields."""
        self.data.update(values)
        self.save()

    def end(self, result: str, exit_code: int, **values: Any) -> None:
        """Write the end: ``done``, ``failed`` or ``interrupted``, and the exit code.

        A full disk must not hide the failure that it caused, so here it is passed over.
        """
        with contextlib.suppress(StepFailed):
            self.update(result=result, exit_code=int(exit_code), **values)

    def save(self) -> None:
        """Write the record."""
        write_json(self.file, self.data)


def listing(root: StateRoot) -> list[dict[str, Any]]:
    """Return all records, newest first.

    A file that cannot be read becomes an entry that says so: it is never deleted and
    never hides the others. A build that says ``running`` and is gone has ``died``.
    """
    found: list[dict[str, Any]] = []
    if root.records.is_dir():
        for file in sorted(root.records.glob("*.json"), reverse=True):
            found.append(_one(file))
    return found


def _one(file: Path) -> dict[str, Any]:
    try:
        data = read_json(file)
    except StepFailed as exc:
        return {"id": file.stem, "result": "unreadable", "problem": exc.what}
    if not isinstance(data, dict) or "id" not in data:
        problem = f"{file} is no build record"
        return {"id": file.stem, "result": "unreadable", "problem": problem}
    if data.get("result") == "running":
        holder = lease.parsed(json.dumps(data.get("holder")))
        if holder is not None and holder.gone:
            return {**data, "result": "died"}
    return data


def _tail() -> str:
    return secrets.token_hex(2)
