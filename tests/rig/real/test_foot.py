# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The live lines of a build on real terminals, from the first to whatever ends it."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.rig.support.screen import Terminal

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60

BUILD = """
import sys, time, pathlib
room = pathlib.Path(sys.argv[1])
print("-- configured", flush=True)
for done in range(1, 4):
    while not (room / str(done)).exists():
        time.sleep(0.02)
    name = f"d/CMakeFiles/x.dir/file{done}.cu.o"
    print(f"[{done}/3] Building CUDA object {name}", flush=True)
    if done == 2:
        print("FAILED: [code=1] d/CMakeFiles/x.dir/other.cu.o", flush=True)
        print("other.cu(7): error: identifier is undefined", flush=True)
"""

CHILD = """
import os, sys, time, threading
from pathlib import Path
os.close(os.open(os.ttyname(2), os.O_RDWR))  # the terminal is ours: Ctrl-C reaches us
from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.builds.eta import Eta
from tools.rig.builds.progress import Progress
console = Console()
console.say("before")
room, build = sys.argv[1:]
held = {"object": "d/CMakeFiles/x.dir/a_file_with_a_long_name.cu.o", "bytes": 1 << 30}
began = time.monotonic()
def status():
    one = {**held, "seconds": time.monotonic() - began}
    two = {**one, "object": "b.cu.o"}
    memory = {"used": 2 << 30, "budget": 8 << 30}
    return {**memory, "running": [one, two], "waiting": [{"object": "c.o"}]}
def talk():
    for n in range(3):
        while not (Path(room) / f"say{n}").exists():
            time.sleep(0.02)
        console.say(f"said {n}")
threading.Thread(target=talk, daemon=True).start()
with Progress(console, status=status, eta=Eta(jobs=2), tick_s=0.05) as progress:
    run.stream(
        [sys.executable, "-c", build, room],
        on_line=progress.line,
        log=Path(room) / "log",
    )
console.mark("ok", "after")
print('{"data": 1}')
"""


class Session:
    """A child on a terminal of its own."""

    def __init__(
        self, room: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.room = room
        self.terminal = Terminal(columns, rows)
        self.raw = b""
        self._mine, theirs = os.openpty()
        self._set_size(columns, rows)
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD, os.fspath(room), BUILD],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
            cwd=ROOT,
            env={**kept, "TERM": "xterm", "PYTHONPATH": os.fspath(ROOT), **env},
        )
        os.close(theirs)
        encoding = env.get("PYTHONIOENCODING", "utf-8")
        self._letters = codecs.getincrementaldecoder(encoding)()

    def go(self, name: str) -> None:
        """Let the build make its next output, or somebody speak."""
        (self.room / name).touch()

    def see(self, check: Callable[[list[str]], bool]) -> list[str]:
        """Wait until what stands on the terminal is as expected."""
        until = time.monotonic() + PATIENCE_S
        while not check(self.terminal.text()):
            assert time.monotonic() < until, self.terminal.text()
            self._read()
        return self.terminal.text()

    def see_text(self, text: str) -> list[str]:
        """Wait until a text stands on the terminal."""
        return self.see(lambda lines: text in "".join(lines))

    def see_more(self, count: int) -> None:
        """Wait until so many more bytes are drawn."""
        count += len(self.raw)
        self.see(lambda _: len(self.raw) > count)

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size."""
        self._set_size(columns, rows)
        self.terminal.resize(columns, rows)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._mine, keys)

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what went to stdout."""
        until = time.monotonic() + PATIENCE_S
        while self.child.poll() is None and time.monotonic() < until:
            self._read()
        while self._read():
            pass
        assert self.child.stdout is not None
        with self.child.stdout as out:
            return self.child.wait(PATIENCE_S), out.read().decode()

    def close(self) -> None:
        """Leave nothing behind."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()
        os.close(self._mine)

    def _read(self) -> bool:
        if not select.select([self._mine], [], [], 0.1)[0]:
            return False
        try:
            got = os.read(self._mine, 65536)
        except OSError:
            # the child has gone, and its terminal with it
            return False
        self.raw += got
        self.terminal.feed(self._letters.decode(got))
        return bool(got)

    def _set_size(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._mine, termios.TIOCSWINSZ, size)


Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a session, which ends with the test."""
    begun: list[Session] = []

    def starts(columns: int = 80, rows: int = 24, **env: str) -> Session:
        begun.append(Session(tmp_path, env, columns, rows))
        return begun[-1]

    yield starts
    for session in begun:
        session.close()


SAID = [
    "before",
    "said 0",
    "said 1",
    "✗ FAILED: [code=1] d/CMakeFiles/x.dir/other.cu.o",
    "  other.cu(7): error: identifier is undefined",
    "said 2",
    "✓ after",
]
"""What stands on the terminal when all is over."""


def through(session: Session) -> None:
    """Let a build go to its end while somebody speaks."""
    session.go("say0")
    session.see_text("said 0")
    session.go("1")
    session.see_text("1/3")
    session.go("say1")
    session.see_text("said 1")
    session.go("2")
    session.see_text("identifier is undefined")
    session.go("say2")
    session.see_text("said 2")


def test_build(start: Start) -> None:
    """A build is seen while it runs; then each line that was said stands there."""
    session = start()
    through(session)
    lines = session.see_text("2/3")
    assert lines[lines.index("said 2") + 2] == (
        "  memory 2.0 of 8.0 GiB  2 running  1 waiting"
    )
    assert lines[-2].endswith("GiB  d/x.dir/a_file_with_a_long_name.cu")
    assert lines[-1].endswith("1.0 GiB  b.cu")
    session.go("3")
    assert session.end() == (0, '{"data": 1}\n')
    assert session.terminal.text() == SAID
    assert b"\033[32m" in session.raw and b"?25" not in session.raw


def test_narrow(start: Start) -> None:
    """Forty columns and eight rows are enough, and nothing is broken into two rows."""
    session = start(40, 8, NO_COLOR="1")
    session.go("1")
    lines = session.see_text("1/3")
    assert lines[0] == "before"
    assert all(len(line) < 40 for line in lines)
    through(session)
    session.go("3")
    assert session.end()[0] == 0
    whole = "".join(session.terminal.text())
    assert whole == "".join(SAID)
    assert session.terminal.codes == {"A", "K"}


@pytest.mark.parametrize(
    "sizes", [[(40, 24), (100, 30)], [(50, 12), (30, 12), (45, 8), (80, 24)], [(80, 5)]]
)
def test_resize(start: Start, sizes: list[tuple[int, int]]) -> None:
    """A window that changes its size leaves no ghosts, and swallows nothing."""
    session = start()
    session.see_text("running")
    session.go("1")
    session.see_text("1/3")
    for columns, rows in sizes:
        session.resize(columns, rows)
        session.see_more(2000)
    through(session)
    session.go("3")
    assert session.end()[0] == 0
    assert "".join(session.terminal.text()) == "".join(SAID)


@pytest.mark.parametrize(
    ("env", "sign"),
    [({"TERM": "dumb"}, "✗"), ({"TERM": "dumb", "PYTHONIOENCODING": "ascii"}, "x")],
)
def test_dumb(start: Start, env: dict[str, str], sign: str) -> None:
    """A terminal that knows no codes gets none."""
    session = start(**env)
    session.go("1")
    session.go("2")
    session.see_text("identifier is undefined")
    session.go("3")
    assert session.end()[0] == 0
    assert b"\033" not in session.raw
    lines = session.terminal.text()
    assert lines[1].startswith(f"{sign} FAILED")
    assert any(line.startswith("  [3/3] ") for line in lines)


def test_ascii(start: Start) -> None:
    """A locale that knows ASCII only gets nothing else."""
    session = start(PYTHONIOENCODING="ascii")
    through(session)
    session.go("3")
    assert session.end()[0] == 0
    assert session.raw.isascii()
    plain = [line.replace("✗", "x").replace("✓", "+") for line in SAID]
    assert session.terminal.text() == plain


def test_ctrl_c(start: Start) -> None:
    """Ctrl-C takes the lines away, and the cursor is there as before."""
    session = start()
    session.go("1")
    session.see_text("1/3")
    session.type(b"\x03")
    code, out = session.end()
    assert code != 0 and out == ""
    assert session.terminal.text()[0] == "before"
    assert not [line for line in session.terminal.text() if "1/3" in line]
    assert b"?25" not in session.raw


def test_killed(start: Start) -> None:
    """Even a kill that nobody hears of leaves the cursor and the colours alone."""
    session = start()
    session.go("1")
    session.see_text("1/3")
    session.child.send_signal(signal.SIGKILL)
    session.end()
    assert b"?25" not in session.raw
    colours = [part for part in session.raw.split(b"\033[") if part[:3].find(b"m") >= 0]
    assert not colours or colours[-1].startswith(b"0m")
