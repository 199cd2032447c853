# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starting, looking and stopping, with a program that answers like a server."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.vllm_cpu import free_port
from tools.rig.base.console import Console
from tools.rig.base.errors import (
    CannotError,
    ExitCode,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.base.state import StateRoot
from tools.rig.guard.lock import BuildLock
from tools.rig.host.gpu import Card, Gpus, Use
from tools.rig.serve import life, look, members, probe, stop
from tools.rig.serve import record as records
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps import serve as step
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process

FAKE = Path(__file__).parents[1] / "support" / "fake_server.py"
NO_CARDS = Gpus("absent", "a test")


@dataclass
class Desk:
    """A state root, and words of what was said."""

    root: StateRoot
    said: io.StringIO

    @property
    def console(self) -> Console:
        """A console that is read afterwards."""
        return Console(self.said, env={})

    def plan(self, *words: str, name: str = "one", port: int = 0) -> ServePlan:
        """Return the plan of a server with faults."""
        port = port or free_port()
        return ServePlan(
            name=name,
            model=Path("/models/tiny"),
            served_name="tiny",
            python=Path(sys.executable),
            argv=(sys.executable, "-S", os.fspath(FAKE), str(port), *words),
            env={"HELLO": "1"},
            unset=("VLLM_API_KEY",),
            cwd=Path("/"),
            host="127.0.0.1",
            port=port,
            api_key_file=None,
            tensor=1,
            pipeline=1,
            cards=(),
            log=self.root.path / "servers" / f"{name}.log",
            drain_s=0,
        )

    def serve(self, plan: ServePlan, **how: object) -> step.Served:
        """Start it."""
        return step.serve(
            self.console,
            plan,
            self.root,
            ask=lambda: NO_CARDS,
            **{"timeout": 20.0, **how},  # type: ignore[arg-type]
        )

    def record(self, name: str = "one") -> ServerRecord:
        """Return a record that must be there."""
        found = records.load(self.root, name)
        assert found is not None
        return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Give a desk, and end what is left on it."""
    monkeypatch.setattr(look, "STILL_S", 1.0)
    made = Desk(StateRoot(tmp_path / "root"), io.StringIO())
    yield made
    for record in records.listing(made.root):
        stop.stop(made.root, record, drain=0, ask=lambda: NO_CARDS)


def test_life_of_a_server(desk: Desk) -> None:
    """It is started, spoken to, recorded, looked at, logged and stopped."""
    done = desk.serve(desk.plan("child"))
    assert done.text == "Paris"
    assert json.dumps(done.to_json())
    record = desk.record()
    assert record.version == "0.99.1"
    assert record.roles == {"keeper": 1, "api": 1, "helper": 1}
    said = desk.said.getvalue()
    assert "the server listens" in said and "is ready at http://127.0.0.1" in said
    report = serve_status(desk.console, desk.root)
    assert report.exit_code == ExitCode.OK
    [one] = report.to_json()["servers"]
    assert (one["state"], one["kv"], one["running"]) == ("ready", 0.25, 0)
    quick = serve_status(desk.console, desk.root, "one", deep=False).servers[0]
    assert quick.last_token_s is not None
    out = io.StringIO()
    serve_logs(desk.root, lines=1, out=out)
    assert out.getvalue() == "Application startup complete.\n"
    pids = [m.pid for m in members.of(record)]
    gone = serve_stop(desk.console, desk.root, ask=lambda: NO_CARDS)
    assert set(gone.ended) == set(pids)
    assert survivors(pids, 2) == []
    assert records.listing(desk.root) == []
    with pytest.raises(UsageError, match="no server is recorded"):
        serve_stop(desk.console, desk.root)
    serve_logs(desk.root, "one", out=out)
    assert "no server is recorded" not in desk.said.getvalue()
    serve_status(desk.console, desk.root)
    assert "no server is recorded" in desk.said.getvalue()


def test_logs_are_followed(desk: Desk) -> None:
    """What comes after is printed too, until the server ends."""
    desk.serve(desk.plan())
    record = desk.record()
    assert members.names(desk.root)[record.pid] == "one"
    out = io.StringIO()
    timer = threading.Timer(0.6, os.kill, (record.pid, signal.SIGTERM))
    timer.start()
    serve_logs(desk.root, "one", follow=True, out=out)
    assert "INFO version 0.99.1" in out.getvalue()
    Path(record.log).unlink()
    with pytest.raises(StepFailed, match="there is no log"):
        serve_logs(desk.root, "one", out=out)


def test_port_of_another_program(desk: Desk) -> None:
    """A port that a stranger has is refused before anything is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        plan = desk.plan(port=other.getsockname()[1])
        with pytest.raises(InUseError, match="cannot be had: Address already in use"):
            desk.serve(plan)
    assert life.port_problem("no such host", 1)
    assert not life.port_problem("::1", free_port())


def test_watch(desk: Desk) -> None:
    """Watching looks again and again, until Ctrl-C."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        serve_status(desk.console, desk.root, watch_s=0.1)
    assert desk.said.getvalue().count("no server is recorded") > 1


def test_two_and_no_name(desk: Desk) -> None:
    """With two servers one must be named; each keeps its port and its name."""
    first = desk.plan()
    desk.serve(first)
    desk.serve(desk.plan(name="two"))
    with pytest.raises(UsageError, match="which one of one, two"):
        serve_stop(desk.console, desk.root)
    with pytest.raises(UsageError, match="no server is called three") as caught:
        serve_stop(desk.console, desk.root, "three")
    assert "one, two" in caught.value.usual
    with pytest.raises(InUseError, match="called one is there already"):
        desk.serve(first)
    with pytest.raises(InUseError, match="belongs to the server one"):
        desk.serve(desk.plan(name="three", port=first.port))
    assert len(serve_status(desk.console, desk.root, deep=False).servers) == 2


def test_the_key_reaches_it_and_not_the_log(desk: Desk, tmp_path: Path) -> None:
    """The key comes by the environment, and the log that it prints it to masks it."""
    key = tmp_path / "key"
    key.write_text("sesame-4711\n")
    plan = replace(desk.plan(), api_key_file=key)
    desk.serve(plan)
    assert "key is ***" in plan.log.read_text()
    assert probe.key_of(desk.record(), {}) == "sesame-4711"
    key.write_text("")
    with pytest.raises(UsageError, match="no key"):
        desk.serve(replace(plan, name="two", port=free_port()))


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("die", "it ended with exit status 3"),
        ("nan", "no text but '!!!!"),
        ("void", "no text but ''"),
        ("refuse", "refuses a completion: HTTP 401: Unauthorized"),
    ],
)
def test_does_not_start(desk: Desk, word: str, what: str) -> None:
    """A server that does not speak sense is an error, and nothing of it stays."""
    with pytest.raises(StepFailed, match=what):
        desk.serve(desk.plan(word, "child"))
    assert records.listing(desk.root) == []


@pytest.mark.parametrize(
    ("word", "what"), [("silent", "was not ready within 1 s"), ("hang", "no token")]
)
def test_too_late(desk: Desk, word: str, what: str) -> None:
    """A server that takes too long is stopped."""
    with pytest.raises(StepFailed, match=what):
        desk.serve(desk.plan(word), timeout=1.0)
    assert records.listing(desk.root) == []


def test_a_doubtful_token_is_looked_at_again(desk: Desk) -> None:
    """One token may be half a letter; sixteen are not."""
    assert desk.serve(desk.plan("twice")).text == "Paris"


def test_environment_that_is_being_built(desk: Desk, tmp_path: Path) -> None:
    """Nothing is started from an environment that a build holds."""
    home = tmp_path / "venv"
    plan = replace(desk.plan(), python=home / "bin" / "python")
    with BuildLock(home, None, "a build"), pytest.raises(InUseError, match="built"):
        desk.serve(plan)


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
    _listens(record)
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
    assert "killing PID" in desk.said.getvalue()
    assert survivors([record.pid, record.session], 2) == []


def test_drain_of_a_busy_server(desk: Desk) -> None:
    """Draining waits as long as it was told, then stops all the same."""
    desk.serve(desk.plan("busy"))
    start = time.monotonic()
    gone = serve_stop(desk.console, desk.root, drain=1.0)
    assert time.monotonic() - start > 1.0
    assert not gone.drained
    assert "waiting for 3 request(s)" in desk.said.getvalue()


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

    def full(root: StateRoot, record: ServerRecord) -> None:
        raise StepFailed("cannot write it: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "save", full)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            serve_stop(desk.console, desk.root, drain=30)
    assert members.api_alive(desk.record())


def test_somebody_elses_server_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may neither write its record nor end it is told so at once."""
    desk.serve(desk.plan("busy"))

    def closed(root: StateRoot, record: ServerRecord) -> None:
        raise StepFailed("cannot write it: Permission denied")

    start = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(records, "save", closed)
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(CannotError, match="belongs to"):
            serve_stop(desk.console, desk.root, drain=30)
    assert time.monotonic() - start < 10
    assert members.api_alive(desk.record())


def test_broken_record_keeps_its_name(desk: Desk) -> None:
    """Status names a record that was cut, and no server takes its name."""
    desk.serve(desk.plan(name="two"))
    file = records.path_of(desk.root, "one")
    file.write_text("{")
    for name in ("", "one"):
        report = serve_status(desk.console, desk.root, name, deep=False)
        assert report.exit_code == ExitCode.FAILED
        row = report.to_json()["servers"][0]
        assert (row["name"], row["state"]) == ("one", "unknown")
        assert str(file) in row["reason"]
        assert row["notes"] == [f"hint: mv {file} {file}.broken"]
    assert [s.name for s in report.servers] == ["one"]
    said = desk.said.getvalue()
    assert "one is unknown: cannot read" in said and f"hint: mv {file}" in said
    assert "no server is recorded" not in said
    with pytest.raises(InUseError, match="the name one is taken") as caught:
        desk.serve(desk.plan())
    assert caught.value.hint.startswith(f"mv {file} {file}.broken")
    assert file.read_text() == "{"
    both = serve_status(desk.console, desk.root, deep=False).servers
    assert [s.state for s in both] == [State.UNKNOWN, State.READY]
    good = serve_status(desk.console, desk.root, "two", deep=False)
    assert good.exit_code == ExitCode.OK


def test_status_without_servers(desk: Desk) -> None:
    """A root where no server was ever started has none, and that is no fault."""
    report = serve_status(desk.console, desk.root)
    assert report.exit_code == ExitCode.OK
    assert report.to_json() == {"servers": []}
    assert "no server is recorded" in desk.said.getvalue()


def test_key_that_was_changed(desk: Desk, tmp_path: Path) -> None:
    """A server whose key file no longer opens it is degraded, with the reason."""
    key = tmp_path / "key"
    key.write_text("sesame\n")
    plan = replace(desk.plan("refuse"), api_key_file=key)
    record, daemon = life.begin(desk.root, plan, ask=lambda: NO_CARDS)
    with daemon:
        daemon.release()
    _listens(record)
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


def test_interrupted_drain_goes_on_serving(desk: Desk) -> None:
    """Ctrl-C while it drains leaves the server as it was."""
    desk.serve(desk.plan("busy"))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        serve_stop(desk.console, desk.root, drain=30)
    assert desk.record().state_of_stop == ""
    assert members.api_alive(desk.record())


def test_memory_that_does_not_come_back(desk: Desk) -> None:
    """A card whose memory stays away is named; trying again later helps."""
    gib = 1 << 30
    held = Gpus("present", cards=(_card(0, 2 * gib, ((77, gib),)), _card(1, 9 * gib)))
    free = Gpus("present", cards=(_card(0, 2 * gib, ((77, gib),)), _card(1, 0)))
    before = Gpus("present", cards=(_card(0, gib), _card(1, 0)))
    plan = replace(desk.plan(), cards=(0, 1))
    record, daemon = life.begin(desk.root, plan, ask=lambda: before)
    with daemon:
        daemon.release()
    _listens(record)
    with pytest.raises(StepFailed) as caught:
        stop.stop(desk.root, record, ask=lambda: held, memory_s=0.3)
    assert caught.value.details == ("card 1: 9.0 GiB did not come back",)
    gone = stop.stop(desk.root, desk.record(), ask=lambda: free, memory_s=0.3)
    assert gone.cards == ("card 0: memory is back", "card 1: memory is back")
    assert records.listing(desk.root) == []


def test_foreground(desk: Desk) -> None:
    """In the foreground the log is shown, and the end of the server is ours."""
    plan = desk.plan()
    timer = threading.Thread(target=_end_soon, args=(desk, signal.SIGTERM))
    timer.start()
    assert desk.serve(plan, foreground=True).exit_code == 0
    timer.join()
    assert "Application startup complete." in desk.said.getvalue()
    assert records.listing(desk.root) == []
    timer = threading.Thread(target=_end_soon, args=(desk, signal.SIGKILL))
    timer.start()
    with pytest.raises(StepFailed, match="ended by itself: it was ended by signal 9"):
        desk.serve(plan, foreground=True)
    timer.join()


def test_tether(desk: Desk) -> None:
    """A server that was not released ends when whoever started it is gone."""
    code = (
        "import sys, os; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tools.rig.base import daemon\n"
        "d = daemon.start(sys.argv[3:], env=dict(os.environ), cwd=Path('/'),\n"
        "    log=Path(sys.argv[2]) / 'a.log', end=Path(sys.argv[2]) / 'a.end')\n"
        "print(d.pid, d.session, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    root = Path(__file__).parents[3]
    words = [root, desk.root.path, *desk.plan("child").argv]
    proc = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with proc:
        assert proc.stdout is not None
        pids = [int(word) for word in proc.stdout.readline().split()]
        assert survivors(pids) == pids
        proc.kill()
    assert survivors(pids, 5) == []


def _card(index: int, used: int, users: tuple[tuple[int, int], ...] = ()) -> Card:
    gone = tuple(Use(pid, bytes_) for pid, bytes_ in users)
    return Card(index, "V100", f"GPU-{index}", "", 70, 16 << 30, used, gone)


def _listens(record: ServerRecord) -> None:
    deadline = time.monotonic() + 10
    while not probe.health(record).status and time.monotonic() < deadline:
        time.sleep(0.05)


def _end_soon(desk: Desk, sig: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = records.load(desk.root, "one")
        if found is not None and found.ready and "is ready" in desk.said.getvalue():
            os.kill(found.pid, sig)
            return
        time.sleep(0.05)
