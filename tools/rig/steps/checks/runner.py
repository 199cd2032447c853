# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Runs checks at the same time; one that crashes or hangs becomes unknown."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.rig.base.errors import RigError
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Check, Outcome

SLOW_S = 4.0
"""Seconds after which a check that is still running says so."""


@dataclass(frozen=True)
class Result:
    """One check's outcome, with what identifies the check and how long it took (s)."""

    id: str
    title: str
    topic: str
    status: str
    detail: str
    hint: str = ""
    source: str = ""
    workaround: str = ""
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)


def run_checks(
    checks: Sequence[Check],
    facts: Facts,
    *,
    on_slow: Callable[[Check, float], None] = lambda check, seconds: None,
    slow_s: float = SLOW_S,
) -> Iterator[Result]:
    """Run `checks` in threads and yield their results in the order of `checks`.

    Parameters
    ----------
    checks
        What to run.
    facts
        What they look at.
    on_slow
        Called once for each check that takes longer than `slow_s` seconds.
    slow_s
        Seconds.

    Notes
    -----
    A thread cannot be ended: one that is past its limit is left behind, as a daemon,
    and its answer is thrown away.
    """
    done: queue.SimpleQueue[Result] = queue.SimpleQueue()
    start = time.monotonic()
    for check in checks:
        thread = threading.Thread(
            target=lambda c: done.put(_run_one(c, facts)), args=(check,), daemon=True
        )
        thread.start()
    waiting = {check.id: check for check in checks}
    told: set[str] = set()
    have: dict[str, Result] = {}
    shown = 0
    while shown < len(checks):
        if checks[shown].id in have:
            yield have[checks[shown].id]
            shown += 1
            continue
        try:
            result = done.get(timeout=_until_next(waiting, told, slow_s, start))
        except queue.Empty:
            result = None
        if result and result.id in waiting:
            have[result.id] = result
            del waiting[result.id]
        spent = time.monotonic() - start
        for check in list(waiting.values()):
            if spent >= check.limit_s:
                have[check.id] = _too_slow(check, spent)
                del waiting[check.id]
            elif spent >= slow_s and check.id not in told:
                told.add(check.id)
                on_slow(check, spent)


def _until_next(
    waiting: Mapping[str, Check], told: set[str], slow_s: float, start: float
) -> float:
    """Return seconds until something must be said or given up."""
    marks = [
        c.limit_s if c.id in told else min(slow_s, c.limit_s) for c in waiting.values()
    ]
    return max(0.01, min(marks) - (time.monotonic() - start))


def _run_one(check: Check, facts: Facts) -> Result:
    start = time.monotonic()
    try:
        outcome = check.run(facts)
    except RigError as exc:
        outcome = Outcome("unknown", exc.what, hint=exc.hint)
    # a crash in one check must not hide what the others found
    except Exception as exc:
        outcome = Outcome("unknown", f"the check crashed: {type(exc).__name__}: {exc}")
    return _result(check, outcome, time.monotonic() - start)


def _too_slow(check: Check, seconds: float) -> Result:
    outcome = Outcome("unknown", f"no answer within {check.limit_s:.0f} s")
    return _result(check, outcome, seconds)


def _result(check: Check, outcome: Outcome, seconds: float) -> Result:
    return Result(
        id=check.id,
        title=check.title,
        topic=check.topic,
        status=outcome.status,
        detail=outcome.detail,
        hint=outcome.hint,
        source=check.source,
        workaround=outcome.workaround,
        seconds=seconds,
        data=dict(outcome.data),
        measured=dict(outcome.measured),
    )
