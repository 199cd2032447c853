# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Turns the output of a build into what a person wants to see of it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex as re

from tools.rig.base.console import Console
from tools.rig.builds import frame
from tools.rig.builds.eta import Eta
from tools.rig.builds.frame import Compile, View

if TYPE_CHECKING:
    from tools.rig.builds.foot import Foot

EVERY_S = 30.0
"""Seconds between plain lines where there is no terminal."""

TICK_S = 0.5
"""Seconds between two drawings."""

STALE_S = 10.0
"""Seconds after which a status that does not change is none."""

ERRORS = 5
"""Lines of one failed compile that are shown at once; the log has them all."""

_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\] (?:Building \w+ object )?(.*)$")
# torch's extension builder shows whole commands
_OUTPUT = re.compile(r" -o (\S+)")
_ERROR = re.compile(r"(?<![-\w])error(?: [#\w]+)?:", re.IGNORECASE)


class Progress:
    """Shows a build as it goes, inside its ``with`` block.

    A terminal gets lines at its foot that are drawn again and again, anything else (a
    dumb terminal, a file, GitHub) a plain line every `EVERY_S`. Outside of the block,
    and without rich, a terminal gets one line.

    Parameters
    ----------
    console
        Where people follow it.
    clock
        Returns seconds; injectable for tests.
    status
        Returns the admission's newest status, or None.
    eta
        What is expected of the build.
    build
        Whose compiles of the status are ours; all, where it is empty.
    events
        The file that gets a line for each compile that has ended, if there is one.
    tick_s
        Seconds between drawings; None leaves them to :meth:`tick`.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        status: Callable[[], Mapping[str, Any] | None] = lambda: None,
        eta: Eta | None = None,
        build: str = "",
        events: Path | None = None,
        tick_s: float | None = TICK_S,
    ) -> None:
        self.console = console
        self.clock = clock
        self.eta = eta or Eta()
        self.build = build
        self.done = 0
        self.total = 0
        self.last = ""
        self._status = status
        self._tick_s = tick_s
        self._events = Events(events)
        self._started = self._said = clock()
        self._latest: tuple[Mapping[str, Any] | None, float] = (None, 0.0)
        self._errors = 0
        self._lock = threading.RLock()
        self._foot: Foot | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def line(self, text: str) -> None:
        """Take one line of output."""
        with self._lock:
            now = self.clock()
            match = _NINJA.match(text)
            if match:
                self._errors = 0
                self.done, self.total = int(match[1]), int(match[2])
                named = _OUTPUT.search(match[3])
                self.last = named[1] if named else match[3].rpartition(" ")[2]
                self.eta.finished(self.last, self.done, self.total, now)
            else:
                self.eta.output(now)
        if match:
            self.tick(last=self.done == self.total)
        else:
            self._say_error(text)

    def tick(self, last: bool = False) -> None:
        """Show how things are: on a terminal at once, elsewhere when it is time."""
        foot = self._foot
        if foot is not None:
            foot.paint()
            return
        with self._lock:
            now, draws = self.clock(), _can_draw(self.console)
            if not (draws or last or now - self._said >= EVERY_S):
                return
            view = self.view()
            if not self.total and not view.held:
                # it configures; but a wait for others is told before the first compile
                return
            self._said = now
            show = self.console.live if draws else self.console.say
            show(frame.plain(view))

    def view(self) -> View:
        """Return what is known now."""
        with self._lock:
            now = self.clock()
            self._events.read()
            told = self._told(now)
            running, waiting = self._split(told, now)
            return View(
                done=self.done,
                total=self.total,
                took_s=now - self._started,
                left_s=self.eta.left(now),
                last=self.last,
                running=running,
                waiting=waiting,
                used=told.get("used") if told else None,
                budget=told.get("budget") if told else None,
                hits=self._events.hits,
                compiled=self._events.count,
                held=self._held(told) if waiting and not running else "",
            )

    def __enter__(self) -> Progress:
        """Begin to draw."""
        try:
            self._begin()
        except BaseException:
            # Ctrl-C comes at any time, and then nobody else ends what was begun
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take everything away that is not to stay."""
        self._ended.set()
        try:
            if self._thread is not None:
                self._thread.join(timeout=5)
        finally:
            foot, self._foot = self._foot, None
            if foot is not None:
                foot.stop()
            self.console.clear()

    def _begin(self) -> None:
        if _can_draw(self.console):
            with contextlib.suppress(ImportError):
                # it is not there when the tasks are run outside their environment
                from tools.rig.builds.foot import Foot

                self._foot = Foot(self.console, self._draw)
                self._foot.start()
        if self._tick_s is not None:
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while not self._ended.wait(self._tick_s):
            self.tick()

    def _draw(self, width: int, height: int) -> Sequence[frame.Line]:
        encoding = getattr(self.console.stream, "encoding", None) or "utf-8"
        return frame.lines(self.view(), width, height, encoding)

    def _say_error(self, text: str) -> None:
        """Show at once that a compile failed: ninja waits for all others first."""
        if text.lstrip().startswith("FAILED: "):
            self._errors = ERRORS
            self.console.mark("fail", text.strip())
        elif self._errors and _ERROR.search(text):
            self._errors -= 1
            self.console.say(f"  {text}")

    def _told(self, now: float) -> Mapping[str, Any] | None:
        told = self._status()
        if told is not self._latest[0]:
            self._latest = (told, now)
        return None if now - self._latest[1] > STALE_S else told

    def _split(
        self, told: Mapping[str, Any] | None, now: float
    ) -> tuple[tuple[Compile, ...] | None, int]:
        """Return what runs and how many wait, and tell the ETA."""
        if told is None:
            return None, 0
        age = now - self._latest[1]
        running = tuple(
            Compile(str(one["object"]), float(one["seconds"]) + age, one.get("bytes"))
            for one in self._ours(told.get("running"))
        )
        waiting = [str(one["object"]) for one in self._ours(told.get("waiting"))]
        self.eta.status({one.name: now - one.seconds for one in running}, waiting)
        return running, len(waiting)

    def _held(self, told: Mapping[str, Any] | None) -> str:
        """Return which other builds run while none of our compiles does."""
        listed = (told or {}).get("running") or ()
        ours = self.build
        others = [one for one in listed if ours and one.get("build", ours) != ours]
        return frame.holders(others, (told or {}).get("cores"))

    def _ours(self, told: Any) -> list[Mapping[str, Any]]:
        """Return this build's entries of a list, those that say nothing left out."""
        return [
            one
            for one in told or ()
            if one.get("object")
            and isinstance(one.get("seconds", 0), (int, float))
            and (not self.build or one.get("build", self.build) == self.build)
        ]


class Events:
    """Counts what the lines of a file say that others are still writing."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.count = 0
        self.hits = 0
        self._at = 0

    def read(self) -> None:
        """Take the lines that are new and whole."""
        if self.file is None:
            return
        with contextlib.suppress(OSError), self.file.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
            self._at += len(whole) + 1 if whole else 0
            for line in whole.split(b"\n") if whole else ():
                with contextlib.suppress(ValueError, AttributeError):
                    self.hits += json.loads(line).get("cache") == "hit"
                    self.count += 1


def _can_draw(console: Console) -> bool:
    dumb = console.env.get("TERM") in ("dumb", "unknown")
    return console.tty and not dumb and not console.github
