# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Gives out room to the compiles of all builds of one user on one machine.

``python -m tools.rig.builds.admission.service --build ID --cores N``: each build starts
one and the holder of a lock serves; the others wait for the lock, and so the next one
takes over at whatever moment the first ends. Launchers then connect anew and say what
they run. One loop without threads; the clock is CLOCK_MONOTONIC, so that setting the
clock of the machine changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.launch_line import SOCKET
from tools.rig.builds.admission import budget as budgets
from tools.rig.builds.admission import protocol
from tools.rig.builds.admission.desk import Desk

TICK_S = 1.0
"""Seconds between two looks at the machine, and two words to those who wait."""

DECIDE_S = 0.25
"""Seconds after which it is decided anew though nobody came or went."""

TAKEOVER_S = 1.5
"""Seconds in which launchers tell a new service what they run; they look each half."""

_BACKLOG = 512
_MOST_LINE = 1 << 18


@dataclass
class _Caller:
    """One connection and what came of a line that is not whole yet."""

    sock: socket.socket
    rest: bytes = b""


class Service:
    """The loop around a :class:`Desk`.

    Parameters
    ----------
    desk
        Decides.
    listener
        Where launchers and watchers connect.
    clock
        CLOCK_MONOTONIC.
    quiet_until
        Nothing starts before that moment, so that what runs already can be told.
    found
        Says whether launchers still find us by our name. When they do not, since
        somebody cleaned the temporary folder, we end and the next one is found.
    """

    def __init__(
        self,
        desk: Desk,
        listener: socket.socket,
        clock: Callable[[], float] = time.monotonic,
        quiet_until: float = 0.0,
        found: Callable[[], bool] = lambda: True,
    ) -> None:
        self.desk = desk
        self.stopped = False
        self._clock = clock
        self._quiet_until = quiet_until
        self._found = found
        self._callers: dict[int, _Caller] = {}
        self._select = selectors.DefaultSelector()
        self._select.register(listener, selectors.EVENT_READ)
        self._listener = listener
        self._next_look = self._next_choice = 0.0

    def wake_on(self, fd: int) -> None:
        """Wake up when a descriptor can be read: a signal came."""
        self._select.register(fd, selectors.EVENT_READ)

    @property
    def idle(self) -> bool:
        """Whether no compile waits or runs."""
        return not self.desk.compiles

    def serve(self) -> None:
        """Serve until stopped."""
        while not self.stopped:
            self.turn(DECIDE_S)

    def turn(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and do what is due."""
        for key, _ in self._select.select(seconds):
            if key.fileobj is self._listener:
                self._welcome()
            elif key.fd in self._callers:
                self._listen(key.fd)
            else:
                self.stopped = True
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + TICK_S
            self.desk.look()
            self.stopped = self.stopped or not self._found()
            for line, one in list(self.desk.compiles.items()):
                if one.running is None:
                    self._answer(line, b"wait\n")
            self._next_choice = 0.0
        if now >= self._next_choice and now >= self._quiet_until:
            self._next_choice = now + DECIDE_S
            for line in self.desk.decide(now):
                self._answer(line, b"go\n")

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            self._callers[sock.fileno()] = _Caller(sock)
            self._select.register(sock, selectors.EVENT_READ)

    def _listen(self, line: int) -> None:
        caller = self._callers[line]
        try:
            got = caller.sock.recv(_MOST_LINE)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        *whole, caller.rest = (caller.rest + got).split(b"\n")
        for one in whole:
            if line not in self._callers:
                # nobody took an answer: what is asked behind it is asked by nobody
                return
            self._take(line, protocol.parsed(one))
        if not got or len(caller.rest) > _MOST_LINE:
            self._hang_up(line)

    def _take(self, line: int, told: dict[str, Any]) -> None:
        now = self._clock()
        word = told.get("op")
        if word == "ask":
            self.desk.ask(line, told, now)
        elif word == "use":
            self.desk.use(line, told, now)
            return
        elif word == "oom":
            self.desk.ran_out(line, told)
        elif word == "end":
            self.desk.end(line, told)
        elif word == "status":
            text = json.dumps(self.desk.status(now)).encode()
            self._answer(line, text + b"\n")
            return
        self._next_choice = 0.0

    def _answer(self, line: int, text: bytes) -> None:
        caller = self._callers.get(line)
        if caller is None:
            return
        try:
            # what does not fit is for somebody who has stopped reading
            caller.sock.sendall(text)
        except OSError:
            self._hang_up(line)

    def _hang_up(self, line: int) -> None:
        caller = self._callers.pop(line, None)
        if caller is not None:
            self._select.unregister(caller.sock)
            caller.sock.close()
            self.desk.gone(line)
            self._next_choice = 0.0


def main(argv: Sequence[str]) -> int:
    """Wait for the lock and serve until a signal comes."""
    given = _arguments(argv)
    place: Path = given.folder or protocol.folder()
    place.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(place / protocol.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, lambda *_: None)
    path = place / SOCKET
    # an earlier service was cut off, and its launchers may still be there
    left = path.exists()
    with _listening(path) as listener:
        # nothing is measured before the lock is ours: until then others compiled
        desk = Desk(_budget(given.budget), given.cores)
        quiet = time.monotonic() + TAKEOVER_S if left else 0.0
        inode = path.stat().st_ino

        def found() -> bool:
            with contextlib.suppress(OSError):
                return path.stat().st_ino == inode
            return False

        service = Service(desk, listener, quiet_until=quiet, found=found)
        service.wake_on(woken)
        service.serve()
        if service.idle and found():
            path.unlink(missing_ok=True)
    return 0


def _budget(given: int | None) -> budgets.Budget:
    # a given budget is taken at its word: the giver has kept what must be kept
    return budgets.Budget.of_machine() if given is None else budgets.Budget(given)


def _listening(path: Path) -> socket.socket:
    """Return a listening socket; its name appears only when it answers."""
    temp = path.with_name(f".{os.getpid()}.sock")
    temp.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(os.fspath(temp))
    listener.listen(_BACKLOG)
    os.replace(temp, path)
    return listener


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rig-admission")
    parser.add_argument("--build", default="", help="which build starts it, for ps")
    parser.add_argument("--cores", type=int, required=True, help="compiles at once")
    parser.add_argument("--budget", type=int, help="bytes (default: measured)")
    parser.add_argument("--folder", type=Path, help="where the socket lies")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
