# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A compile's turn: asked of the admission service, or of a lock when there is none.

Part of :mod:`tools.rig.base.launch`. Nothing that happens to the service may break a
build: while it is away compiles wait a moment for the next one, and then go one by one.
"""

from __future__ import annotations

import os
import time

from tools.rig.base.launch_line import Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    # of Python's own, only what has been loaded before us is free
    from collections.abc import Mapping

GONE_S = 5.0
"""Seconds without any service after which compiles go one by one."""

SILENT_S = 10.0
"""Seconds without a word after which a service that speaks each second is hung."""

_RETRY_S = 0.1


class Room:
    """What a compile asks for, and tells while it has it.

    Parameters
    ----------
    folder
        Where the service has its socket.
    about
        What the service is told of the compile, anew after each loss of the connection.
    """

    def __init__(self, folder: str, about: Mapping[str, object]) -> None:
        self._folder = folder
        self._about = about
        self._line = Line(folder)
        self._alone = -1
        self._needs = self._kills = 0
        self._doing: dict[str, object] = {}

    def reach(self) -> bool:
        """Connect and say who we are, and what we are doing already."""
        if not self._line.connect():
            return False
        doing = {**self._doing, "needs": self._needs, "kills": self._kills}
        return self._line.say(op="ask", **self._about, **doing)

    def wait(self, needs: int = 0) -> None:
        """Return when the compile may start.

        Parameters
        ----------
        needs
            Bytes that it is known to need at least, after memory ran out under it.
        """
        self._needs, self._doing = needs, {}
        heard = time.monotonic()
        while self._alone < 0:
            there = self._line.there or self.reach()
            silence = time.monotonic() - heard
            if silence >= (SILENT_S if there else GONE_S) and self._take_turn():
                # one that hangs hears of it as the next one does, when it looks again
                self._line.close()
                return
            if not there:
                time.sleep(_RETRY_S)
                continue
            words = self._line.hear(1.0)
            if "go" in words:
                return
            if words:
                heard = time.monotonic()

    def use(self, started: float, held: int, child: int) -> None:
        """Tell what the compile holds now, to the next service where one is gone."""
        self._doing = {"started": started, "bytes": held, "child": child}
        if self._line.there:
            self._line.say(op="use", bytes=held, child=child)
            # also how we hear that it is gone
            self._line.hear(0.0)
        else:
            self.reach()

    def ran_out(self, needs: int) -> None:
        """Tell that memory ran out when the compile held so much."""
        self._doing = {}
        self._kills += 1
        self._line.say(op="oom", bytes=needs)

    def end(self, code: int, cache: str) -> None:
        """Give the room back."""
        self._line.say(op="end", code=code, cache=cache)
        self.close()

    def close(self) -> None:
        """Hang up, and let the next one have the turn."""
        self._line.close()
        if self._alone >= 0:
            os.close(self._alone)
        self._alone = -1

    def _take_turn(self) -> bool:
        """Take the lock that lets one compile run where nobody gives out room."""
        import fcntl

        try:
            file = os.path.join(self._folder, "alone.lock")
            if not os.path.isdir(self._folder):
                # cleaned away by somebody, which must not let all go at once
                os.mkdir(self._folder, 0o700)
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # where no lock can be had there is nobody to wait for
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            # a disk that knows no locks keeps nobody waiting
            return not isinstance(exc, BlockingIOError)
        self._alone = fd
        return True
