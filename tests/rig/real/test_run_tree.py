# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whatever ends a step, nothing that it started is left alive.

A step runs in a process of its own here, and the program below it is a tree with all
that makes trees hard to end: children of children, process groups of their own, orphans
that belong to PID 1. Every member leaves a file named after its pid; the tests act when
all of them are there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.support.alive import alive, survivors
from tools.rig.base import run as runs
from tools.rig.base.errors import StepFailed

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[3]
MEMBERS = 7
WAIT_S = 30.0

TREE = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def stay():
    (folder / str(os.getpid())).touch()
    time.sleep(600)
    os._exit(0)
for kind in ("plain", "group", "orphan"):
    if os.fork() == 0:
        if kind == "group":
            os.setpgrp()
        if kind == "orphan" and os.fork():
            os._exit(0)
        os.fork()
        stay()
print("started", flush=True)
if "leave" in sys.argv:
    while len(list(folder.iterdir())) < 6:
        time.sleep(0.01)
    (folder / str(os.getpid())).touch()
    os._exit(0)
stay()
"""

STEP = """
import os, pathlib, sys
from tools.rig.base.report import run_command
from tools.rig.base.run import run, stream
how, log, *program = sys.argv[1:]
def body(console):
    if how == "run":
        return run(program)
    return stream(program, on_line=console.say, log=pathlib.Path(log), nice=1,
        first_to_die=True, on_start=lambda pid: console.say(f"session {pid}"))
sys.exit(run_command(body))
"""

PARENT = """
import os, subprocess, sys
env = {**os.environ, "RIG_PARENT": str(os.getpid())}
between = ["sh", "-c", '"$@"; exit', "sh"] if sys.argv[1] == "wrapped" else []
subprocess.run([*between, sys.executable, *sys.argv[2:]], env=env)
"""

ABOVE = """
import os, pathlib, subprocess, sys
ticks = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
between = (
    "import os, subprocess, sys\\n"
    "os.environ['RIG_PARENT'] += f',{os.getpid()}'\\n"
    "subprocess.run([sys.executable, *sys.argv[1:]])"
)
env = {**os.environ, "RIG_PARENT": f"{os.getpid()}:{ticks}"}
subprocess.run([sys.executable, "-c", between, *sys.argv[1:]], env=env)
"""


class Tree:
    """A step and the tree below it."""

    def __init__(self, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.log = folder / "log"
        self.screen = folder / "screen"
        self.processes: list[subprocess.Popen[bytes]] = []

    def program(self, *how: str) -> list[str]:
        """Return the argument list of the tree."""
        return [sys.executable, "-c", TREE, str(self.marks), *how]

    def step(self, by: str, *how: str) -> list[str]:
        """Return the arguments of a Python that runs the tree as a step."""
        return ["-c", STEP, by, str(self.log), *self.program(*how)]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a Python, wait until the whole tree is there, and return the Python."""
        with self.screen.open("wb") as screen:
            proc = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=screen,
                stderr=screen,
                start_new_session=True,
            )
        self.processes.append(proc)
        self.wait_for(lambda: len(self.pids()) == MEMBERS)
        assert survivors(self.pids()) == self.pids()
        return proc

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Wait for a condition, and fail with the step's own words."""
        deadline = time.monotonic() + WAIT_S
        while not there():
            assert time.monotonic() < deadline, self.screen.read_text()
            time.sleep(0.01)

    def pids(self) -> list[str]:
        """Return the pids of those that have said they are there."""
        return sorted(p.name for p in self.marks.iterdir())

    def session(self) -> int:
        """Return the session of the tree, as the step was told it."""
        words = self.screen.read_text().split()
        return int(words[words.index("session") + 1])

    def clean(self) -> None:
        """End what a failed test has left."""
        for pid in [*self.pids(), *(str(p.pid) for p in self.processes)]:
            if alive(pid):
                os.kill(int(pid), signal.SIGKILL)
        for proc in self.processes:
            proc.wait(WAIT_S)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """Return a tree that is gone after the test, whatever happens."""
    made = Tree(tmp_path)
    try:
        yield made
    finally:
        made.clean()


class TestSignals:
    """Ctrl-C, a supervisor, a lost terminal, the kernel."""

    @pytest.mark.parametrize("by", ["run", "stream"])
    @pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_polite(self, tree: Tree, by: str, sig: signal.Signals) -> None:
        """The step ends in 130, and when it has ended nobody of the tree is left."""
        step = tree.start(*tree.step(by))
        step.send_signal(sig)
        assert step.wait(WAIT_S) == 130
        assert survivors(tree.pids()) == []
        assert "Traceback" not in tree.screen.read_text()

    def test_kill(self, tree: Tree) -> None:
        """Nobody can prepare for SIGKILL, but the minder outlives us and cleans up."""
        step = tree.start(*tree.step("stream"))
        step.kill()
        assert step.wait(WAIT_S) == -signal.SIGKILL
        assert survivors(tree.pids(), within=WAIT_S) == []
        assert survivors([tree.session()], within=WAIT_S) == []

    @pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
    def test_stubborn(self, tree: Tree, sig: signal.Signals) -> None:
        """A tree that ignores SIGTERM is killed after the pause."""
        step = tree.start(*tree.step("stream", "stubborn"))
        start = time.monotonic()
        step.send_signal(sig)
        step.wait(WAIT_S)
        assert survivors(tree.pids(), within=WAIT_S) == []
        assert runs.GRACE_S <= time.monotonic() - start < 3 * runs.GRACE_S

    @pytest.mark.parametrize("by", ["run", "stream"])
    def test_pressed_twice(self, tree: Tree, by: str) -> None:
        """A second Ctrl-C does not wait for the stubborn, and leaves nobody behind."""
        step = tree.start(*tree.step(by, "stubborn"))
        start = time.monotonic()
        step.send_signal(signal.SIGINT)
        time.sleep(0.5)
        step.send_signal(signal.SIGINT)
        assert step.wait(WAIT_S) == 130
        assert survivors(tree.pids()) == []
        assert time.monotonic() - start < runs.GRACE_S

    def test_killed_while_it_stops_the_tree(self, tree: Tree) -> None:
        """SIGKILL in the middle of an orderly end changes nothing for the tree."""
        step = tree.start(*tree.step("stream", "stubborn"))
        step.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        step.kill()
        step.wait(WAIT_S)
        assert survivors(tree.pids(), within=WAIT_S) == []

    def test_minder_killed(self, tree: Tree) -> None:
        """Even without its minder a tree does not outlive the step."""
        step = tree.start(*tree.step("stream"))
        os.kill(tree.session(), signal.SIGKILL)
        step.wait(WAIT_S)
        assert survivors(tree.pids()) == []

    def test_minder_told_to_stop(self, tree: Tree) -> None:
        """A SIGTERM to the minder alone ends what it minds, and the step fails."""
        step = tree.start(*tree.step("stream"))
        os.kill(tree.session(), signal.SIGTERM)
        step.wait(WAIT_S)
        assert survivors([*tree.pids(), tree.session()]) == []


class TestParents:
    """nox stands above a step, and forwards nothing."""

    @pytest.mark.parametrize("how", ["direct", "wrapped"])
    def test_parent_killed(self, tree: Tree, how: str) -> None:
        """A step whose pipeline was killed ends by itself and takes its tree along."""
        parent = tree.start("-c", PARENT, how, *tree.step("stream"))
        parent.kill()
        parent.wait(WAIT_S)
        assert survivors(tree.pids(), within=WAIT_S) == []
        tree.wait_for(lambda: "interrupted" in tree.screen.read_text())

    def test_above_the_parent_killed(self, tree: Tree) -> None:
        """So does one whose pipeline lives on, but whose script was killed."""
        top = tree.start("-c", ABOVE, *tree.step("stream"))
        top.kill()
        top.wait(WAIT_S)
        assert survivors(tree.pids(), within=WAIT_S) == []
        tree.wait_for(lambda: "interrupted" in tree.screen.read_text())

    def test_parent_lives(self, tree: Tree) -> None:
        """A step whose parent is there goes on."""
        tree.start("-c", PARENT, "direct", *tree.step("stream"))
        time.sleep(1.2)
        assert survivors(tree.pids()) == tree.pids()


class TestEnds:
    """Ends without a signal."""

    def test_time_out(self, tree: Tree) -> None:
        """A program that takes too long is ended with everything below it."""
        with pytest.raises(StepFailed, match="did not finish"):
            runs.run(tree.program(), timeout=5, check=True)
        assert len(tree.pids()) == MEMBERS
        assert survivors(tree.pids()) == []

    @pytest.mark.parametrize("by", ["run", "stream"])
    def test_helpers_left_behind(self, tree: Tree, by: str) -> None:
        """A program that ends and leaves its helpers to PID 1 takes them along."""
        if by == "run":
            got = runs.run(tree.program("leave"), timeout=WAIT_S)
            assert got.out == "started\n"
        else:
            said: list[str] = []
            got = runs.stream(tree.program("leave"), on_line=said.append, log=tree.log)
            assert said == ["started"]
        assert got.ok and len(tree.pids()) == MEMBERS
        assert survivors(tree.pids()) == []

    def test_full_disk(self, tree: Tree) -> None:
        """A log that cannot be written ends the tree and is named."""
        with pytest.raises(StepFailed, match="No space left on device") as caught:
            runs.stream(
                tree.program(), on_line=lambda line: None, log=Path("/dev/full")
            )
        assert "/dev/full" in caught.value.what
        assert survivors(tree.pids()) == []
