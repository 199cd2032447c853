# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The look of a timer: what hangs is restarted, at once and then ever more rarely."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.unit_plans import PLAN
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.serve import hangs
from tools.rig.serve import record as records
from tools.rig.serve.look import ServerStatus
from tools.rig.serve.states import State
from tools.rig.steps.serve_look import AGAIN_S, Looked, serve_look

HOUR = 3600.0


def status(state: State) -> ServerStatus:
    """Return what a look finds."""
    return ServerStatus(
        name="qwen",
        state=state,
        reason="no token within 60 s",
        model="/m",
        served_name="qwen",
        version="",
        environment="/e",
        pid=1,
        address="127.0.0.1:8000",
        uptime_s=0.0,
        processes=[],
        cards=[],
    )


class Watch:
    """A server whose states are given, on a clock that is given."""

    def __init__(self, folder: Path) -> None:
        self.root = StateRoot(folder / "root")
        self.states: list[State] = []
        self.now = 1_000_000.0
        self.pauses: list[float] = []
        self.stream = io.StringIO()
        records.save(self.root, records.of_plan(PLAN, "t", self.now))

    def look(self, *states: State) -> Looked:
        """Have one look, which finds these states one after the other."""
        left = [*states]

        def looker(root: StateRoot, record: Any, **how: Any) -> ServerStatus:
            assert how["deep"] is True
            return status(left.pop(0))

        done = serve_look(
            Console(self.stream, {}),
            self.root,
            "qwen",
            looker=looker,
            clock=lambda: self.now,
            pause=self.pauses.append,
        )
        assert not left
        return done


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Return a server that is recorded."""
    return Watch(tmp_path)


@pytest.mark.parametrize(
    "state", [State.READY, State.STARTING, State.DRAINING, State.DEGRADED, State.DEAD]
)
def test_only_a_hang_is_acted_on(watch: Watch, state: State) -> None:
    """A server in any other state is let be."""
    done = watch.look(state)
    assert (done.restart, done.exit_code) == (False, ExitCode.FAILED)
    assert hangs.load(watch.root, "qwen") == []


def test_hung_twice(watch: Watch) -> None:
    """Two looks in a row must find it hung; then the exit code lets systemd act."""
    assert not watch.look(State.HUNG, State.READY).restart
    done = watch.look(State.HUNG, State.HUNG)
    assert (done.restart, done.exit_code) == (True, ExitCode.OK)
    assert watch.pauses == [AGAIN_S] * 2
    assert done.to_json()["state"] == "hung"
    assert "to be restarted" in watch.stream.getvalue()


def test_back_off(watch: Watch) -> None:
    """Each restart waits twice as long as the last, and a day later all is new."""
    assert watch.look(State.HUNG, State.HUNG).restart
    waits = []
    for _ in range(4):
        start = watch.now
        while not watch.look(State.HUNG, State.HUNG).restart:
            watch.now += 60
        waits.append(watch.now - start)
    assert waits == [600, 1200, 2400, 4800]
    watch.now += 25 * HOUR
    assert watch.look(State.HUNG, State.HUNG).restart
    assert len(hangs.load(watch.root, "qwen")) == 1


def test_waits_have_an_end() -> None:
    """However often it hung, six hours later it may be restarted."""
    assert hangs.due_at([0.0]) == hangs.FIRST_S
    assert hangs.due_at([float(n) for n in range(20)]) == 19 + hangs.MOST_S


def test_wrong_clock() -> None:
    """A restart in the future holds back nothing."""
    assert hangs.recent([5.0, 100.0], 50.0) == [5.0]


def test_no_server(watch: Watch) -> None:
    """A server that is not recorded is not restarted."""
    records.remove(watch.root, records.of_plan(PLAN, "t", 0.0))
    assert watch.look().state == "absent"


def test_broken_history(watch: Watch) -> None:
    """What cannot be read as restarts counts as none."""
    file = watch.root.path / "servers/qwen.hangs"
    for text in ("{", "{}", '["x", 5]'):
        file.write_text(text)
        assert hangs.load(watch.root, "qwen") in ([], [5.0])


def test_unwritten_restart_is_none(watch: Watch) -> None:
    """Without a note of it there is no restart: the next one would know no limit."""
    (watch.root.path / "servers/qwen.hangs").mkdir()
    with pytest.raises(StepFailed):
        watch.look(State.HUNG, State.HUNG)
