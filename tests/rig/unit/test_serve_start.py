# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starting a server, with a program that answers like one."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.nobody import as_nobody, needs_root
from tests.rig.support.serve_desk import NO_CARDS, Desk
from tests.rig.support.serve_desk import desk as desk
from tests.rig.support.vllm_cpu import free_port
from tools.rig.base.errors import (
    CannotError,
    ExitCode,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.base.state import StateRoot
from tools.rig.guard.lock import BuildLock
from tools.rig.serve import life, members, probe
from tools.rig.serve import record as records
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


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


def test_port_of_another_program(desk: Desk) -> None:
    """A port that a stranger has is refused before anything is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        plan = desk.plan(port=other.getsockname()[1])
        with pytest.raises(InUseError, match="cannot be had: Address already in use"):
            desk.serve(plan)


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


def test_completions_that_fail(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails at each completion is not asked for half an hour."""
    monkeypatch.setattr(life, "FAILING_S", 0.5)
    start = time.monotonic()
    with pytest.raises(StepFailed, match="fails at a completion: HTTP 500: EngineCore"):
        desk.serve(desk.plan("broken"))
    assert time.monotonic() - start < 15
    assert records.listing(desk.root) == []


def test_folder_of_somebody_else() -> None:
    """Who may not lock the folder of servers is told so, and nothing is started."""
    needs_root()
    with tempfile.TemporaryDirectory(prefix="rig-t-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        desk = Desk(StateRoot(Path(name) / "root"), io.StringIO())
        folder = desk.root.make(records.folder(desk.root))
        # nobody may not write to the folder, and the file is made by who may
        (folder / ".start.lock").touch(0o600)

        def start() -> list[str]:
            try:
                desk.serve(desk.plan())
            except CannotError as exc:
                return exc.lines()
            return []

        said = "\n".join(as_nobody(start))
        assert f"cannot lock {folder}/.start.lock: Permission denied" in said
        assert f"hint: ls -ld {folder}/.start.lock {folder}" in said
        (folder / ".start.lock").unlink()
        with life._alone(desk.root):
            folder.chmod(0o777)

        def lock() -> bool:
            with life._alone(desk.root):
                return True

        assert as_nobody(lock)
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


def test_foreground(desk: Desk) -> None:
    """In the foreground all of the log is shown, and the end of the server is ours."""
    plan = desk.plan("chatty")
    timer = threading.Thread(target=_end_soon, args=(desk, signal.SIGTERM))
    timer.start()
    assert desk.serve(plan, foreground=True).exit_code == 0
    timer.join()
    said = desk.said.getvalue()
    for line in plan.log.read_text().splitlines():
        assert said.count(f"{line}\n") == 1
    assert "Application startup complete." in said and "completion 1" in said
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


def _end_soon(desk: Desk, sig: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = records.load(desk.root, "one")
        if found is not None and found.ready and "is ready" in desk.said.getvalue():
            os.kill(found.pid, sig)
            return
        time.sleep(0.05)
