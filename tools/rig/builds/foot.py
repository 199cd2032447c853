# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A few lines at the foot of a terminal, drawn again and again below all other text.

Drawn by rich, with three habits of our own. The cursor stays visible: nothing has to be
put back when we are killed. What the terminal does not take is lost, as everywhere. And
when the window gets narrower, the rows into which it has broken our lines are taken
away too.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO, cast

from rich.console import Console as RichConsole
from rich.console import ConsoleDimensions, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from tools.rig.base.console import Console, cells
from tools.rig.builds.frame import Line, shown

Draw = Callable[[int, int], Sequence[Line]]
"""Returns the lines for so many columns and rows."""


class Foot:
    """Owns the last lines of a terminal between :meth:`start` and :meth:`stop`.

    Parameters
    ----------
    console
        What is said through it meanwhile appears above the lines, and so does what is
        written to ``sys.stderr`` if that is its stream.
    draw
        What the lines are.
    """

    def __init__(self, console: Console, draw: Draw) -> None:
        self.console = console
        self.draw = draw
        self.stream = console.stream
        self._lock = threading.RLock()
        self._size = _size(self.stream)
        self._drawn: list[str] = []
        self._rich = _Rich(
            file=cast(TextIO, _Deaf(self.stream)),
            force_terminal=True,
            force_interactive=True,
            color_system="standard" if console.color else None,
            no_color=not console.color,
            width=self._size[0],
            height=self._size[1],
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(
            console=self._rich,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._above: _Above | None = None

    def start(self) -> None:
        """Take the place; the console and ``sys.stderr`` write above it from now on."""
        with self._lock:
            if self._above is not None:
                return
            self.console.clear()
            self._above = _Above(self, self.stream)
            if sys.stderr is self.stream:
                sys.stderr = cast(TextIO, self._above)
            self.console.stream = cast(TextIO, self._above)
            self._live.start()
        self.paint()

    def paint(self) -> None:
        """Draw the lines as they are now."""
        with self._lock:
            if self._above is None:
                return
            self._fit()
            drawn = list(self.draw(*self._size))[: self._size[1]]
            self._drawn = shown(drawn)
            text = Text("\n", no_wrap=True, end="").join(
                Text.assemble(*line, end="") for line in drawn
            )
            self._live.update(text, refresh=True)

    def above(self, text: str) -> None:
        """Write whole lines above the lines, as they are."""
        with self._lock:
            if self._above is None:
                _Deaf(self.stream).write(text)
                return
            self._fit()
            self._rich.print(_Raw(text), end="", crop=False, soft_wrap=True)

    def stop(self) -> None:
        """Take the lines away and give the place back."""
        with self._lock:
            above = self._above
            if above is None:
                return
            try:
                self._fit()
                self._live.stop()
            finally:
                self._above = None
                if self.console.stream is above:
                    self.console.stream = self.stream
                if sys.stderr is above:
                    sys.stderr = self.stream
                above.rest()

    def _fit(self) -> None:
        """Follow the window's size; what got too long for it was broken into rows."""
        columns, rows = _size(self.stream)
        if (columns, rows) == self._size:
            return
        if columns < self._size[0]:
            broken = sum(max(1, math.ceil(cells(d) / columns)) for d in self._drawn)
            more = min(broken - len(self._drawn), rows - 1)
            _Deaf(self.stream).write("\r\033[2K\033[1A" * more)
        self._size = columns, rows
        self._rich.size = ConsoleDimensions(columns, rows)


class _Rich(RichConsole):
    """rich's console, which hides no cursor and leaves the decision to us."""

    @property
    def is_dumb_terminal(self) -> bool:
        """Say no: such terminals do not get here, whatever our environment says."""
        return False

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor alone."""
        return False


class _Raw:
    """Text that is written as it is: its colours and its length are its own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(
        self, console: RichConsole, options: ConsoleOptions
    ) -> RenderResult:
        yield Segment(self.text)


class _Deaf(io.TextIOBase):
    """Writes to a stream that may be gone."""

    encoding: str = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Say that it is a terminal: only such get here."""
        return True

    def write(self, text: str) -> int:
        """Write what can be written."""
        shows = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(shows)
            self._stream.flush()
        return len(text)


class _Above(_Deaf):
    """What the console writes to while lines stand at the foot."""

    def __init__(self, foot: Foot, stream: TextIO) -> None:
        super().__init__(stream)
        self._foot = foot
        self._begun = ""

    def fileno(self) -> int:
        """Return the stream's own."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write whole lines above; the beginning of one waits for its end."""
        whole, end, rest = (self._begun + text).rpartition("\n")
        self._begun = rest
        if end:
            self._foot.above(whole + end)
        return len(text)

    def rest(self) -> None:
        """Write the line that was never ended."""
        begun, self._begun = self._begun, ""
        if begun:
            super().write(f"{begun}\n")


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    # a terminal that was never told its size says 0
    return columns or 80, rows or 24
