# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``in-use``: who uses the environment, and who is building it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.console import Console, duration, table
from tools.rig.guard import gate, lease, lock
from tools.rig.guard.lease import Holder
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets


@dataclass(frozen=True)
class Report:
    """What ``in-use`` found.

    ``builder`` holds the lock of the environment, ``lessee`` the lease of the checkout;
    either is None when nobody does.
    """

    venv: str
    checkout: str | None
    found: ScanResult
    builder: Holder | None
    lessee: Holder | None

    @property
    def free(self) -> bool:
        """Whether a build would be let through now."""
        return self.found.free and self.builder is None and self.lessee is None


def in_use(
    console: Console,
    venv: Path,
    checkout: Path | None,
    *,
    only_if_used: bool = False,
    look: Callable[[Targets], ScanResult] = gate.look_at,
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
    """
    report = Report(
        venv=str(venv),
        checkout=None if checkout is None else str(checkout),
        found=look(Targets.of(venv, checkout)),
        builder=lock.holder_of(venv),
        lessee=None if checkout is None else lease.holder_at(checkout),
    )
    if not (only_if_used and report.free):
        _show(console, report)
    return report


def refuse(report: Report) -> None:
    """End with exit code 4 when processes use what the report is about.

    Raises
    ------
    InUseError
        In the words that a build refuses with.
    """
    if not report.found.free:
        raise gate.InUse(Path(report.venv), report.found)


def _show(console: Console, report: Report) -> None:
    found = report.found
    rows = [
        *_rows(found.users, ""),
        *_rows(found.suspects, "perhaps: "),
    ]
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
    elif rows:
        console.mark("fail", f"{len(rows)} process(es) use {report.venv} ({took})")


def _rows(users: tuple[User, ...], doubt: str) -> list[tuple[str, str, str, str]]:
    return [
        (str(user.pid), user.user, doubt + gate.reasons(user), user.command)
        for user in users
    ]
