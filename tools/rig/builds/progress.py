# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Turns the output of a build into what a person wants to see of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import regex as re

from tools.rig.base.console import Console, duration

EVERY_S = 30.0
"""Seconds between plain lines where there is no terminal."""

_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\] (?:Building \w+ object )?(.*)$")
# torch's extension builder shows whole commands
_OUTPUT = re.compile(r" -o (\S+)")


class Progress:
    """Follows ninja's ``[done/total]`` lines.

    Parameters
    ----------
    console
        A terminal gets one live line, anything else a plain line every `EVERY_S`.
    clock
        Returns seconds; injectable for tests.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console
        self.clock = clock
        self.started = clock()
        self.said = self.started
        self.done = 0
        self.total = 0

    def line(self, text: str) -> None:
        """Take one line of output."""
        match = _NINJA.match(text)
        if not match:
            return
        self.done, self.total = int(match[1]), int(match[2])
        named = _OUTPUT.search(match[3])
        what = (named[1] if named else match[3].split(" ")[-1]).rpartition("/")[2]
        took = duration(self.clock() - self.started)
        shown = f"  [{self.done}/{self.total}] {what} ({took})"
        if self.console.tty:
            self.console.live(shown)
        elif self.clock() - self.said >= EVERY_S or self.done == self.total:
            self.said = self.clock()
            self.console.say(shown)
