# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``in-use``: who uses the environment, and who is building it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.rig.base.console import Console, duration, table
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations
from tools.rig.builds.generations import Placed
from tools.rig.guard import gate, lease, lock
from tools.rig.guard.lease import Holder
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.serve import members

BENCH = "bench"
"""Stands for the environment that builds happen in, which is in force before any."""


@dataclass(frozen=True)
class Report:
    """What ``in-use`` found.

    ``builder`` holds the lock of the environment, ``lessee`` the lease of the checkout;
    either is None when nobody does. ``older`` says who runs from a build that is not in
    force any more, by its id; ``servers`` which server a process belongs to, by pid.
    """

    venv: str
    checkout: str | None
    found: ScanResult
    builder: Holder | None
    lessee: Holder | None
    older: Mapping[str, ScanResult] = field(default_factory=dict)
    servers: Mapping[int, str] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether nobody runs from it, from an older one of its place, or builds it."""
        own = self.found.free and self.builder is None and self.lessee is None
        return own and not self.older


def in_use(
    console: Console,
    venv: Path,
    checkout: Path | None,
    *,
    only_if_used: bool = False,
    look: Callable[[Targets], ScanResult] = gate.look_at,
    serving: Callable[[StateRoot], Mapping[int, str]] = members.served,
) -> Report:
    """Show who uses the environment or the checkout's libraries, and return it.

    Parameters
    ----------
    console
        Where people read it.
    venv
        The environment or a link to it.
    checkout
        The checkout, or None.
    only_if_used
        Say nothing when nobody does: an environment that is not there is worth a word
        only when somebody uses it, or the checkout's libraries.
    look
        The scan.
    serving
        Returns the processes of the servers that a state root has records of.
    """
    found = look(Targets.of(venv, checkout))
    builder = lock.holder_of(venv)
    older = _older(venv, found, look, bench=builder is None)
    root = _root_of(venv)
    used = not found.free or bool(older)
    report = Report(
        venv=str(venv),
        checkout=None if checkout is None else str(checkout),
        found=found,
        builder=builder,
        lessee=None if checkout is None else lease.holder_at(checkout),
        older=older,
        servers=_of_users(serving(root), [found, *older.values()])
        if root is not None and used
        else {},
    )
    if not (only_if_used and report.free):
        _show(console, report)
    return report


def _older(
    venv: Path,
    known: ScanResult,
    look: Callable[[Targets], ScanResult],
    *,
    bench: bool,
) -> dict[str, ScanResult]:
    """Return who runs from environments of this place that are not in force any more.

    Who is known already is left out: a sign of a process that may not be looked into
    speaks for every environment. In the bench are also the compilers of a build that
    runs, so it is looked at only while there is none.
    """
    root, place = _root_of(venv), venv.name
    if root is None:
        return {}
    # without its flags the list needs no note that might be broken
    kept = generations.listing(root, place, sizes_s=0, note=Placed())
    folders = {g.id: g.folder for g in kept if g.complete and not g.active}
    if bench and os.path.isdir(root.benches / place):
        folders[BENCH] = root.benches / place
    folders = {k: f for k, f in folders.items() if not _same(f, venv)}
    named = {user.pid for user in known.users + known.suspects}
    found = {}
    for name, folder in folders.items():
        seen = look(Targets.of(folder, None))
        users = tuple(u for u in seen.users if u.pid not in named)
        suspects = tuple(u for u in seen.suspects if u.pid not in named)
        if users or suspects:
            found[name] = replace(seen, users=users, suspects=suspects)
    return found


def _root_of(venv: Path) -> StateRoot | None:
    """Return the state root that an environment lies in, or None."""
    root = StateRoot(venv.parent.parent)
    return root if venv.parent == root.venvs else None


def _of_users(
    servers: Mapping[int, str], found: Iterable[ScanResult]
) -> dict[int, str]:
    users = {user.pid for one in found for user in one.users + one.suspects}
    return {pid: words for pid, words in servers.items() if pid in users}


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _show(console: Console, report: Report) -> None:
    found = report.found
    rows = [
        *_rows(report, found.users, ""),
        *_rows(report, found.suspects, "perhaps: "),
    ]
    for name, seen in report.older.items():
        rows += _rows(report, seen.users, f"{name}: ")
        rows += _rows(report, seen.suspects, f"{name}, perhaps: ")
    if rows:
        for line in table(("PID", "USER", "WHAT IT USES", "COMMAND"), rows):
            console.say(line)
    for line in gate.unknown_lines(found):
        console.mark("unknown", line)
    for what, holder in (("build", report.builder), ("lease", report.lessee)):
        if holder is not None:
            console.mark("warn", f"{what} in force: {holder}")
    took = duration(found.seconds)
    if report.free:
        console.mark("ok", f"nobody is seen using {report.venv} ({took})")
    elif not found.free:
        console.mark("fail", f"{_counted([found], report.venv)} ({took})")
    if report.older:
        what = "what is not in force there any more"
        console.mark("warn", _counted(report.older.values(), what))


def _counted(seen: Iterable[ScanResult], what: str) -> str:
    """Return how many use it, and how many others only may."""
    looks = list(seen)
    users = sum(len(one.users) for one in looks)
    suspects = sum(len(one.suspects) for one in looks)
    doubt = f"{suspects} process(es) may use"
    if not users:
        return f"{doubt} {what}"
    said = f"{users} process(es) use {what}"
    return f"{said}, {doubt} it" if suspects else said


def _rows(
    report: Report, users: tuple[User, ...], doubt: str
) -> list[tuple[str, str, str, str]]:
    rows = []
    for user in users:
        server = report.servers.get(user.pid)
        what = doubt + gate.reasons(user) + (f" ({server})" if server else "")
        rows.append((str(user.pid), user.user, what, user.command))
    return rows
