# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a look says of servers, with a program that answers like one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.serve_desk import NO_CARDS, Desk, listens
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import (
    ExitCode,
)
from tools.rig.serve import counting, life, look, members
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


@pytest.mark.parametrize(
    ("words", "state", "reason"),
    [
        (("hang", "stuck"), State.HUNG, "nothing moved"),
        (("hang", "busy"), State.READY, "it is busy"),
        (("broken",), State.DEGRADED, "EngineCore encountered"),
        (("sick",), State.DEGRADED, "503"),
        (("refuse",), State.READY, "not probed"),
        (("nan",), State.DEGRADED, "no text"),
    ],
)
def test_states(desk: Desk, words: tuple[str, ...], state: State, reason: str) -> None:
    """What a look says of servers with faults."""
    record, daemon = life.begin(desk.root, desk.plan(*words), ask=lambda: NO_CARDS)
    with daemon:
        daemon.release()
    listens(record)
    record.ready = time.time()
    records.save(desk.root, record)
    seen = look.look(desk.root, record, probe_s=1.2, gpus=lambda: NO_CARDS)
    assert (seen.state, reason in seen.reason) == (state, True), seen
    serve_status(desk.console, desk.root, probe_s=0.2)
    assert state.value in desk.said.getvalue()


def test_starting(desk: Desk) -> None:
    """A server that does not listen yet is starting."""
    record, daemon = life.begin(desk.root, desk.plan("silent"), ask=lambda: NO_CARDS)
    with daemon:
        assert look.look(desk.root, record).state is State.STARTING


def test_stopped_and_mute(desk: Desk) -> None:
    """A stopped process counts as hung also where no counters can be read."""
    desk.serve(desk.plan("mute"))
    record = desk.record()
    os.kill(record.pid, signal.SIGSTOP)
    seen = look.look(desk.root, record, probe_s=1.0)
    assert seen.state is State.HUNG
    assert str(record.pid) in seen.reason
    assert look.look(desk.root, record, deep=False).state is State.DEGRADED


def test_dead_and_its_keeper_cleans_up(desk: Desk) -> None:
    """A killed server takes its helpers along; its end is known."""
    desk.serve(desk.plan("child"))
    record = desk.record()
    pids = [m.pid for m in members.of(record)]
    os.kill(record.pid, signal.SIGKILL)
    assert survivors(pids, 5) == []
    seen = look.look(desk.root, record)
    assert (seen.state, seen.reason) == (State.DEAD, "it was ended by signal 9")
    assert serve_status(desk.console, desk.root).exit_code == ExitCode.FAILED
    gone = serve_stop(desk.console, desk.root)
    assert gone.ended == ()
    assert "was not running" in desk.said.getvalue()


def test_key_that_was_changed(desk: Desk, tmp_path: Path) -> None:
    """A server whose key file no longer opens it is degraded, with the reason."""
    key = tmp_path / "key"
    key.write_text("sesame\n")
    plan = replace(desk.plan("refuse"), api_key_file=key)
    record, daemon = life.begin(desk.root, plan, ask=lambda: NO_CARDS)
    with daemon:
        daemon.release()
    listens(record)
    record.ready = time.time()
    records.save(desk.root, record)
    seen = look.look(desk.root, record, gpus=lambda: NO_CARDS)
    assert seen.state is State.DEGRADED
    assert f"the key in {key} is not the one" in seen.reason
    assert "HTTP 401" in seen.reason
    key.write_text("two words")
    seen = look.look(desk.root, record, gpus=lambda: NO_CARDS)
    assert seen.state is State.DEGRADED and "more than one word" in seen.reason
    key.unlink()
    for deep in (True, False):
        seen = look.look(desk.root, record, deep=deep, gpus=lambda: NO_CARDS)
        assert seen.state is State.DEGRADED and f"no key in {key}" in seen.reason


def test_late_is_not_hung(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that comes after its time proves that nothing hangs, still as it is."""
    monkeypatch.setattr(counting, "STILL_S", 60.0)
    desk.serve(desk.plan("late"))
    seen = look.look(desk.root, desk.record(), probe_s=0.3, gpus=lambda: NO_CARDS)
    assert (seen.state, seen.reason) == (State.READY, "")


def test_kept_from_working_is_not_hung(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others have the processors, standing still proves nothing."""
    desk.serve(desk.plan("late"))
    record = desk.record()
    os.kill(record.pid, signal.SIGTERM)
    assert survivors([record.pid], 5) == []
    record, daemon = life.begin(
        desk.root, desk.plan("hang", "stuck", name="two"), ask=lambda: NO_CARDS
    )
    with daemon:
        daemon.release()
    listens(record)
    record.ready = time.time()
    records.save(desk.root, record)
    monkeypatch.setattr(counting, "PATIENCE_S", 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(counting.pace, "lost", lambda before, after: 60.0)
        seen = look.look(desk.root, record, probe_s=0.3, gpus=lambda: NO_CARDS)
    assert seen.state is State.DEGRADED
    assert "this machine is too busy to tell why" in seen.reason
    seen = look.look(desk.root, record, probe_s=0.3, gpus=lambda: NO_CARDS)
    assert seen.state is State.HUNG


def test_counters_that_are_read_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters that were read at the beginning alone do not say what came after."""
    desk.serve(desk.plan("late"))
    real, calls = counting.metrics.read, []

    def once(record: ServerRecord, timeout: float = 2.0) -> Any:
        calls.append(timeout)
        return real(record, timeout) if len(calls) == 1 else None

    monkeypatch.setattr(counting.metrics, "read", once)
    seen = counting.count(desk.record(), "", 0.2)
    assert len(calls) > 2 and seen.first is not None
    assert seen.said is not None and seen.said.timed_out
    assert seen.moved is None
