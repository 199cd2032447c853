# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lines at the foot of a terminal whose window changes, and which ends at any time."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios
from collections.abc import Iterator

import pytest

from tests.rig.support.screen import Terminal, Tty
from tools.rig.base.console import Console
from tools.rig.builds.foot import Foot
from tools.rig.builds.frame import Line
from tools.rig.builds.progress import Progress


class Window(Tty):
    """A terminal in a window with a size."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self._mine, self._theirs = os.openpty()
        self.terminal = Terminal(columns or 80, rows or 24)
        self.resize(columns, rows)

    def fileno(self) -> int:
        """Return a descriptor that knows the size."""
        return self._theirs

    def write(self, text: str) -> int:
        """Show it."""
        self.terminal.feed(text)
        return len(text)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._mine, termios.TIOCSWINSZ, size)
        self.terminal.resize(columns or 80, rows or 24)

    def end(self) -> None:
        """Close what is open."""
        os.close(self._mine)
        os.close(self._theirs)


@pytest.fixture
def window() -> Iterator[Window]:
    """Return a window of eighty columns."""
    made = Window(80, 24)
    yield made
    made.end()


def bars(width: int, height: int) -> list[Line]:
    """Return three lines as wide as they may be."""
    return [[(char * (width - 1), "bold")] for char in "abc"]


def test_narrower(window: Window) -> None:
    """Rows into which a narrower window broke the lines are taken away."""
    console = Console(window, {})
    console.say("before")
    foot = Foot(console, bars)
    foot.start()
    for columns in (50, 20, 30, 80):
        window.resize(columns, 24)
        foot.paint()
        lines = [char * (columns - 1) for char in "abc"]
        assert window.terminal.text() == ["before", *lines]
    window.resize(33, 24)
    console.say("said")
    foot.stop()
    assert window.terminal.text() == ["before", "said"]


def test_stop_after_resize(window: Window) -> None:
    """The end comes before the new size was drawn."""
    foot = Foot(Console(window, {}), bars)
    foot.start()
    window.resize(30, 24)
    foot.stop()
    assert window.terminal.text() == []


def test_no_size() -> None:
    """A terminal that says it has no columns is taken for a usual one."""
    window = Window(0, 0)
    foot = Foot(Console(window, {}), bars)
    foot.start()
    assert window.terminal.text()[0] == "a" * 79
    foot.stop()
    window.end()


def test_bottom_of_the_screen(window: Window) -> None:
    """On a full screen the text scrolls, and each line stands there once."""
    window.resize(80, 6)
    console = Console(window, {})
    foot = Foot(console, bars)
    foot.start()
    for number in range(20):
        console.say(f"line {number}")
        foot.paint()
    foot.stop()
    assert window.terminal.text() == [f"line {n}" for n in range(20)]


def test_twice(window: Window) -> None:
    """To start or stop once more changes nothing; after the end nothing is drawn."""
    console = Console(window, {})
    foot = Foot(console, bars)
    foot.start()
    above = console.stream
    foot.start()
    assert console.stream is above
    foot.stop()
    foot.stop()
    foot.paint()
    above.write("late\n")
    assert window.terminal.text() == ["late"]
    assert console.stream is window


def test_stream_that_is_no_file() -> None:
    """A stream without a descriptor has the usual size."""
    tty = Tty()
    foot = Foot(Console(tty, {}), bars)
    with pytest.raises(io.UnsupportedOperation):
        tty.fileno()
    foot.start()
    assert tty.screen()[0] == "a" * 79
    assert foot.console.stream.isatty()
    foot.stop()


def test_interrupted_at_the_start(window: Window) -> None:
    """Ctrl-C while the first lines are drawn gives everything back."""
    console = Console(window, {})

    def status() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Progress(console, status=status, tick_s=None).__enter__()
    assert console.stream is window
    assert window.terminal.text() == []
