# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``builds``: every recorded build and what became of it; which one is in force."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tools.rig.base.console import Console, size, table
from tools.rig.base.errors import RigError
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations, record
from tools.rig.builds.generations import Generation
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.steps.pruning import users

HEAD = ("BUILD", "RESULT", "COMMIT", "TOOLKIT", "SIZE", "VERIFIED", "STATE", "REMARK")


@dataclass(frozen=True)
class Builds:
    """Records, newest first, each with its generation where one is kept."""

    rows: tuple[dict[str, Any], ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data."""
        return list(self.rows)


def builds(
    console: Console,
    root: StateRoot | None,
    *,
    look: Callable[[Targets], ScanResult] = gate.look_at,
) -> Builds:
    """List the builds below a state root, and say which of them is used by whom.

    Parameters
    ----------
    root
        The state root, or None where there is none yet.
    look
        The scan.
    """
    records = record.listing(root) if root else []
    kept = {g.id: (place, g) for place, g in _kept(root)} if root else {}
    by = users([g for _, g in kept.values() if g.complete], look)
    known = {str(r.get("id")) for r in records}
    # one whose record is gone is still one that can be switched to
    orphans = [{"id": name, "result": "done"} for name in kept if name not in known]
    rows = [_row(r, kept.get(str(r.get("id"))), by) for r in [*records, *orphans]]
    rows.sort(key=lambda row: str(row["id"]), reverse=True)
    for line in sorted({ln for seen in by.values() for ln in gate.unknown_lines(seen)}):
        console.mark("unknown", line)
    lines = table(HEAD, [_cells(row) for row in rows]) if rows else ["no builds yet"]
    for line in lines:
        console.say(line)
    return Builds(tuple(rows))


def _kept(root: StateRoot) -> Iterable[tuple[str, Generation]]:
    with contextlib.suppress(FileNotFoundError):
        for folder in sorted(root.generations.iterdir()):
            # what is wrong with one place must not hide the others
            with contextlib.suppress(RigError):
                if folder.is_dir():
                    for one in generations.listing(root, folder.name):
                        yield folder.name, one


def _row(
    its: Mapping[str, Any],
    kept: tuple[str, Generation] | None,
    by: Mapping[str, ScanResult],
) -> dict[str, Any]:
    row = {**its, "state": "", "used_by": [], "generation": None}
    if kept is None:
        if row.get("mode") or row.get("plan"):
            gone = row.get("result") in ("done", "kept") and not row.get("unchanged")
            row["state"] = "removed" if gone else ""
        return row
    _, one = kept
    seen = by.get(one.id)
    row["generation"] = one.to_json()
    row["state"] = "active" if one.active else "previous" if one.previous else "kept"
    if not one.complete:
        row["state"] = "being made" if one.live else "incomplete"
    if seen is not None:
        row["used_by"] = [
            *(f"{user.pid} {user.command}" for user in seen.users),
            *(f"perhaps {user.pid} {user.command}" for user in seen.suspects),
        ]
    return row


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    one = row["generation"] or {}
    remark = row.get("version") or row.get("error") or row.get("problem") or ""
    used = [f"in use: {line}" for line in row["used_by"]]
    taken = one.get("own_bytes")
    result = str(row.get("result", ""))
    if one:
        result = f"{result} ({one.get('mode') or 'unknown'})"
    return (
        str(row.get("id", "")),
        result,
        str(row.get("commit") or one.get("commit") or ""),
        str(row.get("toolkit") or one.get("toolkit") or ""),
        size(taken) if taken else "",
        "yes" if one.get("verified") else "no" if one else "",
        row["state"],
        "; ".join([str(one.get("version") or remark), *used]),
    )
