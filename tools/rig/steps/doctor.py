# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``doctor``: looks at the machine and says whether it can build the profile.

Reads and measures; changes nothing. Ends with one line: ready, ready with work-rounds
(named), or cannot (why, and what changes it).
"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.config import Settings
from tools.rig.base.console import Console, duration
from tools.rig.base.errors import ExitCode, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.builds.profile import Profile
from tools.rig.steps.checks import registered
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.probes import Probes
from tools.rig.steps.checks.registry import Check
from tools.rig.steps.checks.runner import SLOW_S, Result, run_checks
from tools.rig.steps.checks.verdict import (
    CANNOT,
    Difference,
    Verdict,
    compare,
    judge,
    read_report,
)

__all__ = [
    "Report",
    "compare",
    "compare_with",
    "doctor",
    "list_checks",
    "read_report",
]

_SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """What ``doctor`` found.

    ``seconds`` is the wall time of all checks, ``probes`` the seconds of each single
    probe.
    """

    profile: str
    host: str
    verdict: Verdict
    results: tuple[Result, ...]
    seconds: float
    probes: Mapping[str, float]

    @property
    def exit_code(self) -> ExitCode:
        """3 when this machine cannot do it, 0 otherwise."""
        return ExitCode.CANNOT if self.verdict.kind == CANNOT else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"schema": _SCHEMA, **dataclasses.asdict(self)}


def doctor(
    console: Console,
    settings: Settings,
    profile: Profile,
    *,
    only: Sequence[str] = (),
    checkout: Path | None = None,
    absent: bool = False,
    root: StateRoot | None = None,
    env: Mapping[str, str] | None = None,
    probes: Probes | None = None,
    checks: Sequence[Check] | None = None,
    slow_s: float = SLOW_S,
) -> Report:
    """Run the checks, print each result and the verdict, and return them.

    Parameters
    ----------
    console
        Where people's text goes.
    settings, profile
        What is to be built, and how.
    only
        Names of checks or topics to run; all when empty. Commas divide, too. The name
        of a check is that check alone, also where a topic is called the same.
    checkout
        What is to be built; the setting, or the current folder, when None.
    absent
        Whether that is not here: `checkout` is then the folder that the suite lies in,
        and what is judged is the place where the sample, or a clone, would lie.
    root
        The folder for everything the suite makes, when it is chosen already.
    env
        The environment that a build would start from; ours when None.
    probes
        How the machine is read.
    checks
        What may be run; every registered check when None.
    slow_s
        Seconds after which a running check says so.

    Raises
    ------
    UsageError
        When `only` names neither a check nor a topic.
    """
    wanted = _chosen(registered() if checks is None else checks, only)
    facts = Facts(
        profile=profile,
        settings=settings,
        env=dict(os.environ) if env is None else env,
        source=checkout or settings.source or Path.cwd(),
        absent=absent,
        root=root,
        probes=probes or Probes(),
    )
    start = time.monotonic()
    results = []
    for result in run_checks(
        wanted,
        facts,
        on_slow=lambda check, spent: console.say(
            f"  still at it after {duration(spent)}: {check.title}"
        ),
        slow_s=slow_s,
    ):
        show(console, result)
        results.append(result)
    seconds = time.monotonic() - start
    verdict = judge(results, profile.name)
    console.say()
    console.say(verdict.line)
    if verdict.hint:
        console.say(f"hint: {verdict.hint}")
    return Report(
        profile=profile.name,
        host=platform.node(),
        verdict=verdict,
        results=tuple(results),
        seconds=seconds,
        probes=dict(facts.seconds),
    )


def list_checks() -> list[tuple[str, str, str]]:
    """Return name, topic and title of every check, in the order of the screen."""
    return [(check.id, check.topic, check.title) for check in registered()]


def show(console: Console, result: Result) -> None:
    """Print one result, and what to do about it when it is not in order."""
    console.mark(result.status, f"{result.title}: {result.detail}")
    if result.hint and result.status in ("warn", "fail", "unknown"):
        console.say(f"    hint: {result.hint}")


def compare_with(console: Console, report: Report, file: Path) -> list[Difference]:
    """Print and return what differs from the report of another host in `file`.

    Raises
    ------
    UsageError
        When `file` is no report.
    """
    other = read_report(file)
    found = compare(report.to_json(), other)
    name = other.get("host") or file.name
    if not found:
        console.say(f"no difference from {name}")
        return found
    console.say(f"{len(found)} differences from {name}:")
    for difference in found:
        console.say(f"  {difference}")
    return found


def _chosen(checks: Sequence[Check], only: Sequence[str]) -> list[Check]:
    names = [word for text in only for word in text.split(",") if word]
    ids = {c.id for c in checks}
    topics = {c.topic for c in checks} - ids
    for name in names:
        if name not in ids | topics:
            raise UsageError(
                f"no check or topic is called {name!r}", hint="invoke doctor --list"
            )
    if not names:
        return list(checks)
    return [c for c in checks if c.id in names or c.topic in topics & {*names}]
