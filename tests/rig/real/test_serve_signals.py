# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Signals to who starts a real server: by pid, by group, by a terminal that goes."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.rig.support import serve_tasks, tiny_model, vllm_cpu
from tests.rig.support.vllm_cpu import Traces
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode
from tools.rig.base.state import StateRoot
from tools.rig.serve import members
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.real

HERE = Path(__file__).parents[3]
SUPPORT = HERE / "tests/rig/support"
TOOLS = {
    "invoke": ["invoke", "--search-root", os.fspath(SUPPORT), "-c", "serve_tasks"],
    "nox": ["nox", "-f", os.fspath(SUPPORT / "serve_noxfile.py"), "-s", "serve", "--"],
}


@dataclass
class Started:
    """A tool that starts a server in a session of its own."""

    root: StateRoot
    proc: subprocess.Popen[bytes]
    master: int = -1
    held: list[Traces] = field(default_factory=list)

    def record(self) -> ServerRecord:
        """Wait for the server's record and return it."""
        return self._until(lambda found: True)

    def loading(self) -> ServerRecord:
        """Wait until the engine's process is there: the worst moment for a signal."""
        return self._until(lambda r: any(m.role == "engine" for m in members.of(r)))

    def ready(self) -> ServerRecord:
        """Wait until it is ready."""
        return self._until(lambda found: found.ready is not None)

    def _until(self, there: object) -> ServerRecord:
        assert callable(there)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            found = records.load(self.root, "one")
            if found is not None and found.session and there(found):
                self.held = [vllm_cpu.traces(found.session, found.port)]
                return found
            assert self.proc.poll() is None, "it ended before the server was there"
            time.sleep(0.1)
        raise AssertionError("no server")

    def assert_gone(self) -> None:
        """Fail when anything of the server is left."""
        for traces in self.held:
            traces.assert_gone()
        # nox does not wait for the step that takes the record away
        deadline = time.monotonic() + 30
        while records.load(self.root, "one") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert records.load(self.root, "one") is None


class Starter:
    """Starts tools and ends what a failed test left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = vllm_cpu.environment() / "bin" / "python"
        self.model = tiny_model.write(folder / "tiny")
        self.root = StateRoot(folder / "root")
        self.all: list[Started] = []

    def __call__(
        self, tool: str, *, foreground: bool = True, terminal: bool = False
    ) -> Started:
        """Start a server by invoke or nox."""
        plan = vllm_cpu.plan(self.root.path, self.model, python=self.python)
        file = serve_tasks.write_plan(plan, self.folder / "plan.json")
        words = [
            "serve",
            "--plan",
            os.fspath(file),
            "--root",
            os.fspath(self.root.path),
        ]
        argv = [sys.executable, "-m", *TOOLS[tool], *words]
        argv += ["--foreground"] if foreground else []
        master, slave = pty.openpty() if terminal else (-1, -1)
        out = slave if terminal else subprocess.DEVNULL
        proc = subprocess.Popen(
            argv,
            cwd=HERE,
            stdin=out,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_take_terminal if terminal else None,
        )
        if terminal:
            os.close(slave)
        self.all.append(Started(self.root, proc, master))
        return self.all[-1]

    def clean(self) -> None:
        """End everything."""
        for started in self.all:
            if started.proc.poll() is None:
                os.killpg(started.proc.pid, signal.SIGKILL)
            started.proc.wait(20)
        for record in records.listing(self.root):
            serve_stop(Console(io.StringIO(), env={}), self.root, record.name)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Give a function that starts a server by a tool."""
    starter = Starter(tmp_path)
    with vllm_cpu.nothing_left_in_shm(starter.root.path):
        yield starter
        starter.clean()


@pytest.mark.parametrize("group", [False, True], ids=["pid", "group"])
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize("tool", list(TOOLS))
def test_signal_while_loading(
    start: Starter, tool: str, sig: signal.Signals, group: bool
) -> None:
    """Whoever gets the signal, a server that is only half there goes as well."""
    started = start(tool)
    started.loading()
    (os.killpg if group else os.kill)(started.proc.pid, sig)
    # nox waits for its own time-out when it was told alone
    code = started.proc.wait(90)
    assert code != 0
    if tool == "invoke":
        assert code == ExitCode.INTERRUPTED
    started.assert_gone()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_foreground_and_ready(start: Starter, sig: signal.Signals) -> None:
    """A server in the foreground ends with whoever started it, even by SIGKILL."""
    started = start("invoke")
    record = started.ready()
    os.kill(started.proc.pid, sig)
    code = started.proc.wait(60)
    for traces in started.held:
        traces.assert_gone(40)
    if sig == signal.SIGTERM:
        assert code == ExitCode.INTERRUPTED
        assert records.load(start.root, "one") is None
    else:
        assert members.of(record) == []


@pytest.mark.parametrize("ready", [False, True], ids=["loading", "ready"])
def test_foreground_that_serve_stop_ends(start: Starter, ready: bool) -> None:
    """A supervisor sees no failure when somebody stops its server on purpose."""
    started = start("invoke")
    (started.ready if ready else started.loading)()
    serve_stop(Console(io.StringIO(), env={}), start.root, "one")
    assert started.proc.wait(60) == ExitCode.OK
    started.assert_gone()


def test_terminal_hangs_up(start: Starter) -> None:
    """A terminal that is closed takes its foreground server with it."""
    started = start("invoke", terminal=True)
    started.ready()
    os.close(started.master)
    assert started.proc.wait(60) != 0
    started.assert_gone()


def test_background_outlives_its_terminal(start: Starter) -> None:
    """A server in the background lives on when the terminal is closed."""
    started = start("invoke", foreground=False, terminal=True)
    record = started.ready()
    assert started.proc.wait(60) == 0
    os.close(started.master)
    time.sleep(1)
    assert members.api_alive(record)
    serve_stop(Console(io.StringIO(), env={}), start.root, "one")
    started.assert_gone()
