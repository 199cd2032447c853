# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""In which state a server is, from facts alone."""

from __future__ import annotations

import pytest

from tools.rig.serve.states import Facts, State, judge


@pytest.mark.parametrize(
    ("facts", "state", "reason"),
    [
        (Facts(alive=False, end="gone", orphans=("PID 7 (x)",)), State.DEAD, "PID 7"),
        (Facts(alive=True, stopping=True), State.DRAINING, "told to stop"),
        (Facts(alive=True, was_ready=False, health=0), State.STARTING, ""),
        (Facts(alive=True), State.READY, ""),
        (Facts(alive=True, stranger="PID 5 has it"), State.DEGRADED, "PID 5"),
        (
            Facts(alive=True, was_ready=False, stranger="PID 5", stopped=("PID 9",)),
            State.DEGRADED,
            "PID 5; stopped by a signal: PID 9",
        ),
        (Facts(alive=True, unproved="who knows"), State.UNKNOWN, "who knows"),
        (Facts(alive=True, unproved="who", health=503), State.DEGRADED, "503"),
        (Facts(alive=True, health=503), State.DEGRADED, "engine is dead"),
        (Facts(alive=True, health=0), State.DEGRADED, "silent"),
        (Facts(alive=True, health=404), State.DEGRADED, "404"),
        (Facts(alive=True, missing=("1 worker gone",)), State.DEGRADED, "worker"),
        (Facts(alive=True, stopped=("PID 9",)), State.DEGRADED, "PID 9"),
        (Facts(alive=True, probe="HTTP 500"), State.DEGRADED, "HTTP 500"),
        (Facts(alive=True, probe="401", refused=True), State.READY, "not probed"),
        (
            Facts(alive=True, probe="HTTP 401", refused=True, key="no key in F"),
            State.DEGRADED,
            "not probed: no key in F: HTTP 401",
        ),
        (Facts(alive=True, key="no key"), State.DEGRADED, "not probed: no key"),
        (
            Facts(alive=True, probe="late", timed_out=True, moved=False),
            State.HUNG,
            "nothing moved",
        ),
        (Facts(alive=True, probe="late", timed_out=True, moved=True), State.READY, ""),
        (Facts(alive=True, probe="late", timed_out=True), State.DEGRADED, "late"),
        (
            Facts(alive=True, probe="late", timed_out=True, moved=True, health=0),
            State.READY,
            "it is busy",
        ),
        (Facts(alive=True, probe="", health=0, moved=False), State.READY, ""),
        (Facts(alive=True, health=0, moved=True), State.READY, ""),
        (Facts(alive=True, health=0, moved=False), State.DEGRADED, "silent"),
        (
            Facts(alive=True, probe="late", timed_out=True, moved=False, starved=True),
            State.DEGRADED,
            "late: this machine is too busy to tell",
        ),
        (
            Facts(alive=True, probe="l", timed_out=True, used_cpu=False, starved=True),
            State.DEGRADED,
            "too busy to tell",
        ),
        (
            Facts(
                alive=True,
                probe="late",
                timed_out=True,
                moved=False,
                starved=True,
                stopped=("PID 9",),
            ),
            State.HUNG,
            "PID 9",
        ),
        (
            Facts(
                alive=True,
                probe="late",
                timed_out=True,
                moved=False,
                compiling=("PID 8 (ptxas)",),
            ),
            State.READY,
            "compiles kernels (PID 8 (ptxas))",
        ),
        (
            Facts(alive=True, probe="late", timed_out=True, used_cpu=False),
            State.HUNG,
            "late",
        ),
        (
            Facts(alive=True, probe="late", timed_out=True, moved=True, health=503),
            State.DEGRADED,
            "503",
        ),
    ],
)
def test_judge(facts: Facts, state: State, reason: str) -> None:
    """Each state, from facts."""
    found, why = judge(facts)
    assert found is state
    assert reason in why
