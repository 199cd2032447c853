# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build will be given and how long it will take, before it starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tools.rig.builds.admission import policy
from tools.rig.builds.admission.predictions import Predictions

GIB = 1 << 30
_LAUNCHER = 8 << 20
"""Bytes that a launcher holds while it waits."""
_FOR_LAUNCHERS = 0.03
_LEAST_WAITING = 8
_MOST_WAITING = 200


@dataclass(frozen=True)
class JobPlan:
    """Jobs of a build.

    ``ninja`` is how many steps ninja starts at once, most of which wait; ``cap`` how
    many compiles the admission lets run at most; ``why`` says it in words.
    """

    ninja: int
    cap: int
    why: str


def plan_jobs(asked: int | None, origin: str, budget_bytes: int, cores: int) -> JobPlan:
    """Return how many jobs ninja gets, and how many compiles may run.

    Parameters
    ----------
    asked
        What the user wants, or None.
    origin
        Where that came from, for the message.
    budget_bytes
        What all compiles together may hold.
    cores
        Cores that this process may use.

    Notes
    -----
    The admission can only prefer the long compiles among those that ask, so ninja gets
    many more jobs than there are cores: as many as may wait in a few hundredths of the
    budget. What the user asked for is a cap on what runs.
    """
    room = int(budget_bytes * _FOR_LAUNCHERS) // _LAUNCHER
    waiting = min(_MOST_WAITING, max(_LEAST_WAITING, room))
    cap = cores if asked is None else min(asked, cores)
    budget = f"up to {budget_bytes / GIB:.1f} GiB for all together"
    if asked is None or asked > cores:
        return JobPlan(cores + waiting, cap, f"at most {cores} (cores), {budget}")
    return JobPlan(cap + waiting, cap, f"at most {cap} ({origin} says so), {budget}")


def expected_seconds(
    keys: Iterable[str],
    predictions: Predictions,
    budget_bytes: int,
    cores: int,
    cap: int | None = None,
) -> float:
    """Return how long the compiles of some objects will take together.

    Parameters
    ----------
    keys
        Names of the objects; see :func:`predictions.key_of`.
    predictions
        What is known of them; the table by kind of source serves for the others.
    budget_bytes, cores, cap
        As for :func:`policy.choose`.
    """
    waiting = []
    for key in keys:
        expected = predictions.predict(key)
        waiting.append(policy.Waiting(key, expected.curve, known=expected.known))
    return policy.expected_seconds(waiting, budget_bytes, cores, cap)
