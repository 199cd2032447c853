# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starts of servers that are interrupted, more than once."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.serve_desk import Desk
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import Interrupted, StepFailed
from tools.rig.serve import members, stop
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.steps import serve as step

pytestmark = pytest.mark.allow_process


@pytest.mark.parametrize("fails", [False, True], ids=["starts", "fails"])
def test_many_ctrl_c(desk: Desk, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """However often it is pressed, the start ends with the server and its record."""
    monkeypatch.setattr(stop, "GRACE_S", 1.0)
    pids: list[int] = []
    ended = threading.Event()

    def press() -> None:
        record = _recorded(desk)
        pids.extend(m.pid for m in members.of(record))
        while fails and not _stops(desk):
            time.sleep(0.02)
        while not ended.wait(0.1):
            if records.load(desk.root, "one") is not None:
                os.kill(os.getpid(), signal.SIGINT)

    def heard(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGINT, heard)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(StepFailed if fails else Interrupted) as caught:
            desk.serve(desk.plan("deaf", "silent", "child"), timeout=2 if fails else 20)
    finally:
        ended.set()
        presser.join()
        assert signal.signal(signal.SIGINT, kept) is heard
    assert fails or "the server one was stopped" in caught.value.what
    assert "stopping one at once" in desk.said.getvalue()
    assert records.listing(desk.root) == []
    assert pids and survivors(pids, 2) == []


def test_interrupted_and_not_all_given_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stopping fails nobody is told that it was done, but how to go on."""

    def held(*args: object, **how: object) -> None:
        raise StepFailed("the server one is gone, but not all memory came back")

    with monkeypatch.context() as patch:
        patch.setattr(stop, "stop", held)
        patch.setattr(step, "_until_ready", _interrupted)
        with pytest.raises(Interrupted, match="was told to stop") as caught:
            desk.serve(desk.plan())
    assert caught.value.hint == "invoke serve-stop --name one"
    assert "not all memory came back" in desk.said.getvalue()


def _interrupted(*args: object) -> None:
    raise KeyboardInterrupt


def _recorded(desk: Desk) -> ServerRecord:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = records.load(desk.root, "one")
        if found is not None and len(members.of(found)) > 2:
            return found
        time.sleep(0.02)
    raise AssertionError("nothing was started")


def _stops(desk: Desk) -> bool:
    found = records.load(desk.root, "one")
    return found is None or bool(found.state_of_stop)
