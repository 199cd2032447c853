# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``builds``: every recorded build and what became of it; which one is in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, size, table
from tools.rig.base.errors import RigError
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import generations, journals, placed, record, switch
from tools.rig.builds.generations import Generation, Placed
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.host import look as looks
from tools.rig.steps import gone
from tools.rig.steps.pruning import users

HEAD = (
    *("BUILD", "RESULT", "COMMIT", "TOOLKIT", "SIZE", "VERIFIED", "STATE"),
    *("CHECKOUT", "REMARK"),
)


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
    source: Path | None = None,
    *,
    look: Callable[[Targets], ScanResult] = gate.look_at,
    disk: Callable[..., looks.Disk] = looks.disk,
) -> Builds:
    """List the builds below a state root, and say which of them is used by whom.

    Parameters
    ----------
    root
        The state root, or None where there is none yet.
    source
        A checkout's real path: only its builds; all when None.
    look, disk
        The scan, and the look at a checkout.
    """
    records = record.listing(root) if root else []
    names = placed.places(root) if root else []
    if source is not None:
        names = [name for name in names if name == place_id(source)]
    places = [_place(root, name, disk) for name in names] if root else []
    kept = {g.id: g for place in places for g in place.kept}
    by = users([g for g in kept.values() if g.complete], look)
    if source is not None:
        its = str(source)
        records = [r for r in records if r.get("checkout") == its or r["id"] in kept]
    known = {str(r.get("id")) for r in records}
    # one whose record is gone is still one that can be switched to
    orphans = [{"id": name, "result": "done"} for name in kept if name not in known]
    rows = [_row(r, kept.get(str(r.get("id"))), by) for r in [*records, *orphans]]
    rows += [_broken(place, exc) for place in places for exc in place.problems]
    rows.sort(key=lambda row: str(row["id"]), reverse=True)
    for line in sorted({ln for seen in by.values() for ln in gate.unknown_lines(seen)}):
        console.mark("unknown", line)
    none = "no builds yet" if source is None else f"no builds of {source} yet"
    lines = table(HEAD, [_cells(row) for row in rows]) if rows else [none]
    for line in lines:
        console.say(line)
    for place in places:
        if place.waiting:
            console.mark("warn", f"{place.name}: {place.waiting}")
        for exc in place.problems:
            console.mark("fail", exc.what)
            console.say(f"hint: {exc.hint}")
    return Builds(tuple(rows))


@dataclass(frozen=True)
class _Place:
    """The generations of one checkout, and what is wrong with its notes.

    ``waiting`` says what the next command there does first.
    """

    name: str
    kept: list[Generation]
    problems: list[RigError]
    waiting: str = ""


def _place(root: StateRoot, name: str, disk: Callable[..., looks.Disk]) -> _Place:
    """Look at one place; what is wrong with it must not hide the others."""
    problems: list[RigError] = []
    waiting, note = "", Placed()
    try:
        note = generations.placed(root, name)
    except RigError as exc:
        problems.append(exc)
    for file in switch.journals_of(root, name):
        try:
            found = journals.load(file)
        except RigError as exc:
            problems.append(exc)
            continue
        if found is not None:
            how = "finished" if found.phase == "switch" else "undone"
            waiting = f"a switch was interrupted, and is {how} by the next command"
    known = generations.listing(root, name, note=note)
    if gone.is_gone(known, disk):
        # nobody can run from there, so nothing is in force
        known = [replace(one, active=False, previous=False) for one in known]
    return _Place(name, known, problems, waiting)


def _broken(place: _Place, exc: RigError) -> dict[str, Any]:
    """Return a row for a file beside the generations that cannot be read."""
    return {
        "id": f"({place.name})",
        "result": "unreadable",
        "problem": exc.what,
        "state": "",
        "checkout": "",
        "used_by": [],
        "generation": None,
    }


def _row(
    its: Mapping[str, Any],
    one: Generation | None,
    by: Mapping[str, ScanResult],
) -> dict[str, Any]:
    row = {**its, "state": "", "used_by": [], "generation": None}
    row["checkout"] = str(its.get("checkout") or (one.checkout if one else ""))
    # one that was just the same as another made none of its own
    same = its.get("unchanged") or its.get("generation")
    row["same_as"] = None if same == its.get("id") else same
    if one is None:
        was = row.get("result") in ("done", "kept")
        row["state"] = "removed" if was and not row["same_as"] else ""
        return row
    seen = by.get(one.id)
    row["generation"] = one.to_json()
    waited = row.get("result") in ("kept", "interrupted", "died")
    if waited and (one.active or one.previous):
        # its record tells how its build ended, and it was switched on since
        row["result"] = "done"
    row["state"] = "active" if one.active else "previous" if one.previous else "kept"
    if not one.complete:
        row["state"] = "being made" if one.live else "incomplete"
    if one.problem:
        row["state"] = "broken"
        row.setdefault("problem", one.problem)
    if seen is not None:
        row["used_by"] = [
            *(f"{user.pid} {user.command}" for user in seen.users),
            *(f"perhaps {user.pid} {user.command}" for user in seen.suspects),
        ]
    return row


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    one = row["generation"] or {}
    said = (row.get("problem"), one.get("version"), row.get("version"))
    remark = next((word for word in (*said, row.get("error")) if word), "")
    used = [f"in use: {line}" for line in row["used_by"]]
    same = [f"same as {row['same_as']}"] if row.get("same_as") else []
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
        row["checkout"],
        "; ".join(word for word in [str(remark), *same, *used] if word),
    )
