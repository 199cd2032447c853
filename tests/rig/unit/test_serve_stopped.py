# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Servers that somebody else stops, wants to stop, or has replaced meanwhile."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.support.serve_desk import NO_CARDS, Desk
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import ExitCode, Interrupted, StepFailed
from tools.rig.host import processes
from tools.rig.serve import ending, life, look, members, stop
from tools.rig.serve import record as records
from tools.rig.serve.loading import Follower
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps import serve as step
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


def meanwhile(desk: Desk, act: Callable[[ServerRecord], object]) -> threading.Thread:
    """Do something as soon as the server is recorded and, in the foreground, ready."""

    def run() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = records.load(desk.root, "one")
            if found is not None and ("silent" in WORDS or found.ready):
                act(found)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


WORDS: set[str] = set()


@pytest.fixture(autouse=True)
def words() -> None:
    """Forget what the server of another test was told."""
    WORDS.clear()


def other_stop(desk: Desk) -> Callable[[ServerRecord], object]:
    """Return what somebody else does at another console."""
    return lambda record: stop.stop(desk.root, record, ask=lambda: NO_CARDS)


def test_foreground_that_somebody_stops(desk: Desk) -> None:
    """Being stopped by serve-stop is no failure: a supervisor must let it be."""
    thread = meanwhile(desk, other_stop(desk))
    done = desk.serve(desk.plan("child"), foreground=True)
    thread.join()
    assert done.exit_code == ExitCode.OK
    said = desk.said.getvalue()
    assert "the server one was stopped by serve-stop" in said
    assert "nobody saw how it ended" not in said
    assert records.listing(desk.root) == []


@pytest.mark.parametrize("foreground", [False, True])
def test_start_that_somebody_stops(desk: Desk, foreground: bool) -> None:
    """A start that is stopped was interrupted; in the foreground that is no failure."""
    WORDS.add("silent")
    thread = meanwhile(desk, other_stop(desk))
    plan = desk.plan("silent", "child")
    if foreground:
        assert desk.serve(plan, foreground=True).exit_code == ExitCode.OK
    else:
        with pytest.raises(Interrupted, match="stopped by serve-stop before") as caught:
            desk.serve(plan)
        assert caught.value.code == ExitCode.INTERRUPTED
    thread.join()
    assert records.listing(desk.root) == []


def test_record_that_somebody_takes_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without a record would never be found again: it is not left running."""
    plan = desk.plan("child")
    pids: list[int] = []
    real = members.note

    def taken(record: ServerRecord) -> list[members.Member]:
        found = real(record)
        pids.extend(m.pid for m in found)
        records.remove(desk.root, record)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(step.members, "note", taken)
        with pytest.raises(StepFailed, match="the record of one is gone"):
            desk.serve(plan)
    assert pids and not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)


def test_stopper_that_dies_in_the_middle(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stop that was killed left behind is ended by who started the server."""
    WORDS.add("silent")

    def half(record: ServerRecord) -> None:
        record.state_of_stop, record.stopper = records.STOPPING, (4194303, 1)
        records.update(desk.root, record, "state_of_stop", "stopper")

    thread = meanwhile(desk, half)
    with pytest.raises(StepFailed, match="was not ready within 2 s"):
        desk.serve(desk.plan("silent"), timeout=2.0)
    thread.join()
    assert records.listing(desk.root) == []


def test_starter_that_wakes_up_late(desk: Desk) -> None:
    """Who slept through the end of its server leaves the next of that name alone."""
    record, daemon = life.begin(desk.root, desk.plan(), ask=lambda: NO_CARDS)
    with daemon:
        stop.stop(desk.root, record, drain=0, ask=lambda: NO_CARDS)
        desk.serve(desk.plan())
        later = desk.record()
        # as in the foreground
        step._stay(desk.console, desk.root, record, Follower(Path(record.log)))
        records.remove(desk.root, record)
        # and as while it starts
        stop.stop(desk.root, record, ask=lambda: NO_CARDS)
    assert "the server one was stopped by serve-stop" in desk.said.getvalue()
    assert desk.record() == later
    assert members.api_alive(later)


def test_broken_record_says_nothing_of_a_stop(desk: Desk) -> None:
    """Where the record cannot be read nobody is blamed."""
    record, daemon = life.begin(desk.root, desk.plan(), ask=lambda: NO_CARDS)
    with daemon:
        assert not ending.by_others(desk.root, record)
        file = records.path_of(desk.root, "one")
        good = file.read_text()
        file.write_text("{")
        assert not ending.by_others(desk.root, record)
        file.write_text(good)


_STOP = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.steps.serve_stop import serve_stop
serve_stop(Console(sys.stdout), StateRoot(Path(sys.argv[2])), "one", drain=60)
"""


def test_killed_stop_is_not_for_ever(desk: Desk) -> None:
    """Draining ends with who drains: a killed one leaves a server like any other."""
    desk.serve(desk.plan("busy"))
    repository = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", _STOP, repository, desk.root.path],
        stdout=subprocess.DEVNULL,
    ) as proc:
        deadline = time.monotonic() + 20
        while not desk.record().state_of_stop and time.monotonic() < deadline:
            time.sleep(0.05)
        seen = look.look(desk.root, desk.record(), deep=False)
        assert seen.state is State.DRAINING
        proc.kill()
    assert desk.record().state_of_stop == records.DRAINING
    assert look.look(desk.root, desk.record()).state is State.READY


def test_who_stops_is_known_by_its_start(desk: Desk) -> None:
    """The number of who stops may be used again, and a boot ends all of them."""
    own = os.getpid(), processes.start_time(os.getpid()) or 0
    record, daemon = life.begin(desk.root, desk.plan(), ask=lambda: NO_CARDS)
    with daemon:
        record.state_of_stop = records.DRAINING
        assert not record.being_stopped
        record.stopper = own
        assert record.being_stopped
        record.stopper = own[0], own[1] + 1
        assert not record.being_stopped
        record.stopper, record.boot_id = own, "another"
        assert not record.being_stopped


def test_drain_of_a_server_that_starts(desk: Desk) -> None:
    """A server that nobody could reach yet has no requests to wait for."""
    record, daemon = life.begin(desk.root, desk.plan("silent"), ask=lambda: NO_CARDS)
    with daemon:
        start = time.monotonic()
        gone = serve_stop(desk.console, desk.root, drain=60, ask=lambda: NO_CARDS)
    assert time.monotonic() - start < 20
    assert record.pid in gone.ended and not gone.drained
    assert "waiting" not in desk.said.getvalue()


def test_no_lines_of_a_log(desk: Desk) -> None:
    """Who wants no line gets none."""
    desk.serve(desk.plan())
    out = io.StringIO()
    serve_logs(desk.root, "one", lines=0, out=out)
    assert out.getvalue() == ""


def test_log_beside_a_broken_record(desk: Desk) -> None:
    """The log of a server whose record cannot be read is shown all the same."""
    folder = desk.root.make(records.folder(desk.root))
    (folder / "one.json").write_text("{")
    with pytest.raises(StepFailed, match="cannot read"):
        serve_logs(desk.root, "one")
    (folder / "one.log").write_text("a line\n")
    out = io.StringIO()
    serve_logs(desk.root, "one", out=out, follow=True)
    assert out.getvalue() == "a line\n"


def test_log_that_cannot_be_read(desk: Desk) -> None:
    """A log that is closed to us, or is none, is not shown as an empty one."""
    folder = desk.root.make(records.folder(desk.root))
    log = folder / "one.log"
    log.write_text("")
    out = io.StringIO()
    serve_logs(desk.root, "one", out=out)
    assert out.getvalue() == ""
    desk.serve(desk.plan())
    log.unlink()
    with pytest.raises(StepFailed, match="there is no log"):
        serve_logs(desk.root, "one", out=out)
    log.mkdir()
    with pytest.raises(StepFailed, match=r"cannot read .*one\.log: not a regular file"):
        serve_logs(desk.root, "one", out=out)
    log.rmdir()
