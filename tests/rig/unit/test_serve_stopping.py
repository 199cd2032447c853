# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stopping a server, with a program that answers like one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.interrupts import ctrl_c
from tests.rig.support.serve_desk import NO_CARDS, Desk, card, listens
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import (
    CannotError,
    StepFailed,
)
from tools.rig.base.state import StateRoot
from tools.rig.host.gpu import Gpus
from tools.rig.serve import life, look, members, stop
from tools.rig.serve import record as records
from tools.rig.serve.metrics import Counters
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


def test_without_its_keeper(desk: Desk) -> None:
    """Helpers of a server without keeper and API server are ended, strangers never."""
    desk.serve(desk.plan("child"))
    record = desk.record()
    for pid in (record.session, record.pid):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    [orphan] = members.of(record)
    seen = look.look(desk.root, record)
    assert seen.state is State.DEAD
    assert f"PID {orphan.pid}" in seen.reason
    record.members, record.token = [], "another"
    assert members.of(record) == []
    gone = stop.stop(desk.root, desk.record(), ask=lambda: NO_CARDS)
    assert gone.ended == (orphan.pid,)
    assert survivors([orphan.pid], 2) == []


def test_deaf_server_is_killed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores SIGTERM is killed, and that is told."""
    monkeypatch.setattr(stop, "GRACE_S", 0.5)
    desk.serve(desk.plan("deaf"))
    record = desk.record()
    gone = serve_stop(desk.console, desk.root)
    assert record.pid in gone.killed
    assert f"killing PID {record.pid} " in desk.said.getvalue()
    assert f"PID {record.session} " not in desk.said.getvalue()
    assert survivors([record.pid, record.session], 2) == []


def test_drain_of_a_busy_server(desk: Desk) -> None:
    """Draining waits as long as it was told, then stops all the same."""
    desk.serve(desk.plan("busy"))
    start = time.monotonic()
    gone = serve_stop(desk.console, desk.root, drain=1.0)
    assert time.monotonic() - start > 1.0
    assert not gone.drained
    assert "waiting for 3 request(s)" in desk.said.getvalue()
    assert "3 request(s) did not finish within 1 s" in desk.said.getvalue()


def test_less_time_than_the_server_was_started_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What --drain says counts, also where the server itself would wait longer."""
    monkeypatch.setattr(stop, "GRACE_S", 0.5)
    desk.serve(replace(desk.plan("deaf"), drain_s=60))
    start = time.monotonic()
    assert serve_stop(desk.console, desk.root, drain=1).killed
    assert 1.0 < time.monotonic() - start < 20


def test_drain_of_a_server_that_tells_late(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters that cannot be read for a moment are no reason to lose requests."""
    desk.serve(desk.plan())
    real, calls = stop.metrics.read, []

    def late(record: ServerRecord) -> Counters | None:
        calls.append(time.monotonic())
        return None if len(calls) < 3 else real(record)

    monkeypatch.setattr(stop.metrics, "read", late)
    assert serve_stop(desk.console, desk.root, drain=30).drained
    assert len(calls) > 3 and calls[-1] - calls[0] < 20
    assert "how many requests run is not told" in desk.said.getvalue()


def test_drain_of_a_server_that_never_tells(desk: Desk) -> None:
    """One without counters gets the whole time, since requests may run."""
    desk.serve(desk.plan("mute"))
    start = time.monotonic()
    assert not serve_stop(desk.console, desk.root, drain=1.0).drained
    assert time.monotonic() - start >= 1.0


def test_drained_only_when_asked_and_seen(desk: Desk) -> None:
    """Nothing was drained unasked, nor of a server that was killed."""
    desk.serve(desk.plan())
    assert serve_stop(desk.console, desk.root, drain=5).drained
    desk.serve(desk.plan())
    assert not serve_stop(desk.console, desk.root).drained
    desk.serve(replace(desk.plan(), drain_s=3))
    assert serve_stop(desk.console, desk.root).drained
    for drain in (None, 0, 5):
        desk.serve(replace(desk.plan("child"), drain_s=3))
        os.kill(desk.record().pid, signal.SIGKILL)
        assert survivors([desk.record().pid], 5) == []
        assert not serve_stop(desk.console, desk.root, drain=drain).drained


def test_full_disk_stops_nobody_from_stopping(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that cannot be written is a warning; the server ends all the same."""
    desk.serve(desk.plan("child"))
    record = desk.record()
    pids = [m.pid for m in members.of(record)]

    def full(path: Path, data: object) -> None:
        raise StepFailed(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(records, "write_json", full)
    gone = serve_stop(desk.console, desk.root)
    assert set(gone.ended) == set(pids)
    assert survivors(pids, 2) == []
    assert records.listing(desk.root) == []
    assert "warning: cannot write" in desk.said.getvalue()


def test_full_disk_while_it_drains(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C stays Ctrl-C where the record cannot be put back."""
    desk.serve(desk.plan("busy"))

    def full(root: StateRoot, record: ServerRecord, *names: str) -> bool:
        raise StepFailed("cannot write it: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "update", full)
        with ctrl_c():
            serve_stop(desk.console, desk.root, drain=30)
    assert members.api_alive(desk.record())


def test_somebody_elses_server_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may neither write its record nor end it is told so at once."""
    desk.serve(desk.plan("busy"))

    def closed(root: StateRoot, record: ServerRecord, *names: str) -> bool:
        raise StepFailed("cannot write it: Permission denied")

    start = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(records, "update", closed)
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(CannotError, match="belongs to"):
            serve_stop(desk.console, desk.root, drain=30)
    assert time.monotonic() - start < 10
    assert members.api_alive(desk.record())
    with monkeypatch.context() as patch:
        # the folder may be open to several users
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(CannotError, match="belongs to"):
            serve_stop(desk.console, desk.root)
    assert desk.record().state_of_stop == ""


def test_interrupted_drain_goes_on_serving(desk: Desk) -> None:
    """Ctrl-C while it drains leaves the server as it was."""
    desk.serve(desk.plan("busy"))
    with ctrl_c():
        serve_stop(desk.console, desk.root, drain=30)
    assert desk.record().state_of_stop == ""
    assert members.api_alive(desk.record())


def test_memory_that_does_not_come_back(desk: Desk) -> None:
    """A card whose memory stays away is named; trying again later helps."""
    gib = 1 << 30
    held = Gpus("present", cards=(card(0, 2 * gib, ((77, gib),)), card(1, 9 * gib)))
    free = Gpus("present", cards=(card(0, 2 * gib, ((77, gib),)), card(1, 0)))
    before = Gpus("present", cards=(card(0, gib), card(1, 0)))
    plan = replace(desk.plan(), cards=(0, 1))
    record, daemon = life.begin(desk.root, plan, ask=lambda: before)
    with daemon:
        daemon.release()
    listens(record)
    with pytest.raises(StepFailed) as caught:
        stop.stop(desk.root, record, ask=lambda: held, memory_s=0.3)
    assert caught.value.details == ("card 1: 9.0 GiB did not come back",)
    gone = stop.stop(desk.root, desk.record(), ask=lambda: free, memory_s=0.3)
    assert gone.cards == ("card 0: memory is back", "card 1: memory is back")
    assert records.listing(desk.root) == []


@pytest.mark.parametrize("boot", ["now", "earlier"])
def test_numbers_that_others_have_now(
    desk: Desk, boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that got the number of one of a dead server does not hold its card."""
    plan = replace(desk.plan("child"), cards=(0,))
    free = Gpus("present", cards=(card(0, 0),))
    record, daemon = life.begin(desk.root, plan, ask=lambda: free)
    with daemon:
        daemon.release()
    listens(record)
    members.note(record)
    pids = [member.pid for member in members.of(record)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert survivors(pids, 5) == []
    gib = 1 << 30
    taken = Gpus("present", cards=(card(0, gib, ((os.getpid(), gib),)),))
    record.members = [*record.members, (os.getpid(), 1)]
    if boot == "earlier":
        record.boot_id, record.baseline = "another", {"0": {"used": 0, "users": {}}}
        taken = Gpus("present", cards=(card(0, 9 * gib),))
        # what is in /dev/shm now was made after the boot
        monkeypatch.setattr(stop.shared_memory, "remove", lambda files: [*files])
        record.shm = {"/dev/shm/another": 7}
    gone = stop.stop(desk.root, record, ask=lambda: taken, memory_s=0.3)
    assert gone.cards == (("card 0: memory is back",) if boot == "now" else ())
    assert gone.shm_removed == ()
    assert records.listing(desk.root) == []
