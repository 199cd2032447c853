# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One line out of many results, and the difference between two hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.base.state import read_json
from tools.rig.steps.checks.runner import Result

READY = "ready"
ROUNDS = "ready with work-rounds"
CANNOT = "cannot"


@dataclass(frozen=True)
class Verdict:
    """What all results come to.

    ``kind`` is one of :data:`READY`, :data:`ROUNDS` and :data:`CANNOT`; ``line`` says
    it in one line; ``hint`` is the command that changes a ``cannot``; ``workarounds``
    is what the suite will do by itself.
    """

    kind: str
    line: str
    hint: str = ""
    workarounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """One fact that two hosts do not share; None where a host does not have it."""

    check: str
    what: str
    mine: Any
    other: Any

    def __str__(self) -> str:
        name = self.check if self.what == "status" else f"{self.check}.{self.what}"
        return f"{name}: {_shown(self.mine)} here, {_shown(self.other)} there"


def judge(results: Sequence[Result], profile: str) -> Verdict:
    """Return the verdict on a machine.

    Any ``fail`` means that it cannot. An ``unknown`` alone does not: it is named.
    """
    failed = [r for r in results if r.status == "fail"]
    # one check plans a work-round, another one finds that it cannot be had
    instead: dict[str, str] = {}
    for r in results:
        instead.update(r.measured.get("instead", {}))
    planned = [instead.get(r.workaround, r.workaround) for r in results]
    rounds = tuple(dict.fromkeys(word for word in planned if word))
    unknown = [r.id for r in results if r.status == "unknown"]
    tail = f" (unknown: {', '.join(unknown)})" if unknown else ""
    if failed:
        first = failed[0]
        others = [r.id for r in failed[1:]]
        more = f"; also: {', '.join(others)}" if others else ""
        line = f"cannot build {profile}: {first.title}: {first.detail}{more}"
        return Verdict(CANNOT, line, first.hint, rounds)
    if rounds:
        line = f"{ROUNDS}: {'; '.join(rounds)}{tail}"
        return Verdict(ROUNDS, line, "", rounds)
    return Verdict(READY, f"ready: this machine can build {profile}{tail}")


def compare(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Return what differs between two reports in their JSON form.

    Compared are the status and the lasting facts of each check; free space, rates and
    durations are not.

    Parameters
    ----------
    mine, other
        What :meth:`tools.rig.steps.doctor.Report.to_json` returns.
    """
    found = []
    if mine.get("profile") != other.get("profile"):
        found.append(
            Difference("profile", "name", mine.get("profile"), other.get("profile"))
        )
    left, right = _by_id(mine), _by_id(other)
    for id in [*left, *(key for key in right if key not in left)]:
        a, b = left.get(id, {}), right.get(id, {})
        if a.get("status") != b.get("status"):
            found.append(Difference(id, "status", a.get("status"), b.get("status")))
        facts_a, facts_b = a.get("data", {}), b.get("data", {})
        for key in sorted({*facts_a, *facts_b}):
            if facts_a.get(key) != facts_b.get(key):
                found.append(Difference(id, key, facts_a.get(key), facts_b.get(key)))
    return found


def read_report(file: Path) -> dict[str, Any]:
    """Read what ``doctor --json`` printed on another host.

    Raises
    ------
    UsageError
        When the file does not exist or holds something else.
    """
    hint = "invoke doctor --json > FILE   (on the other host)"
    try:
        data = read_json(file)
    except StepFailed as exc:
        raise UsageError(exc.what, hint=hint) from exc
    if data is None:
        raise UsageError(f"{file} does not exist", hint=hint)
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, list) or not all(
        isinstance(r, dict) and isinstance(r.get("data", {}), dict) and "id" in r
        for r in results
    ):
        raise UsageError(f"{file} is no report of doctor", hint=hint)
    return dict(data)


def _by_id(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(r["id"]): r for r in report.get("results", [])}


def _shown(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "nothing"
    return value if isinstance(value, str) else str(value)
