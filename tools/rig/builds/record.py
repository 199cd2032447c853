# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Records of builds: what reports, rollback and diagnosis read instead of guessing."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.rig.base import redact
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, read_json, write_json
from tools.rig.guard import lease

_TEXTS = (
    *("id", "log", "started", "result", "command", "checkout", "environment"),
    *("profile", "version", "commit", "head", "toolkit", "wheel", "error", "mode"),
)
_LISTS = ("steps", "objects", "notes", "env_difference")
_TABLES = ("plan", "verify")
_NUMBERS = ("seconds", "exit_code")
_KINDS: tuple[tuple[tuple[str, ...], type | tuple[type, ...], str], ...] = (
    (_TEXTS, str, "text"),
    (_LISTS, list, "list"),
    (_TABLES, dict, "table"),
    (_NUMBERS, (int, float), "number"),
)
"""What who reads records rests on; any of it but the first two may be absent."""


_BLOCK = 512
"""Bytes of a block as stat(2) counts them."""

_NO_END = "its end could not be written: it was killed, or the disk was full"


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

        A full disk must not hide the failure that it caused. So what is written beside
        the record at other times is then written over it, as much of it as has room.
        """
        ended = {"result": result, "exit_code": int(exit_code)}
        try:
            self.update(**ended, **values)
        except StepFailed:
            told = ended | {k: values[k] for k in ("error", "seconds") if k in values}
            self._end_over(told, ended)

    def _end_over(self, *ends: dict[str, Any]) -> None:
        """Write over the record what has room: all of it, or the first end that has."""
        with contextlib.suppress(StepFailed, TypeError):
            kept = read_json(self.file) or {}
            for data in (self.data, *(kept | end for end in ends)):
                with contextlib.suppress(OSError):
                    if _write_over(self.file, data):
                        return

    def save(self) -> None:
        """Write the record."""
        write_json(self.file, self.data)


def _write_over(file: Path, data: dict[str, Any]) -> bool:
    """Write data into the room that a file has already; False where it has too little.

    Raises
    ------
    OSError
        When the disk refuses even that, or there is no such file.
    """
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, default=str)
    content = text.encode("utf-8", "surrogateescape")
    with file.open("r+b", buffering=0) as fh:
        info = os.fstat(fh.fileno())
        if len(content) > max(info.st_size, info.st_blocks * _BLOCK):
            return False
        # one write, blanks over the rest of the old text: never a mixture of both
        fh.write(content.ljust(info.st_size))
        os.fsync(fh.fileno())
    return True


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
    why = _damage(data)
    if why or not isinstance(data, dict):
        problem = f"{file} is no build record: {why}"
        return {"id": file.stem, "result": "unreadable", "problem": problem}
    if data.get("result") == "running":
        holder = lease.parsed(json.dumps(data.get("holder")))
        if holder is not None and holder.gone:
            return {"error": _NO_END, **data, "result": "died"}
    return data


def _damage(data: Any) -> str:
    """Return what is wrong with a record, or nothing."""
    if not isinstance(data, dict):
        return "it is no table"
    for name in _TEXTS[:2]:
        if not data.get(name):
            return f"it has no {name}"
    for names, kind, called in _KINDS:
        for name in names:
            if not isinstance(data.get(name), (kind, type(None))):
                return f"its {name} is no {called}"
    # folders have its name, and are removed by it
    bad = "/" in data["id"] or data["id"].startswith(".")
    return "its id is no name" if bad else ""


def _tail() -> str:
    return secrets.token_hex(2)
