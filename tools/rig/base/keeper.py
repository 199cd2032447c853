# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stays with a server for as long as it runs, as the leader of its session.

Started by :mod:`tools.rig.base.daemon` in a process of its own.
A server could live alone, but three things need somebody who is always there: its log
is rotated by size while it grows, the way in which it ended is written down, and what a
killed server leaves behind (an engine, workers, shared memory) is ended and removed at
once, so that a card is never held by a server that nobody can reach. It and what it
imports use nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from typing import Any

from tools.rig.base import shared_memory
from tools.rig.base.keeper_log import Lines, Log, secrets_of
from tools.rig.base.tree import session_members

GRACE_S = 10.0
"""Seconds that survivors get between SIGTERM and SIGKILL."""

KILL_S = 3.0
LOOK_S = 10.0
"""Seconds between two looks at the shared memory that the session holds."""

LOADING_S, LOADING_LOOK_S = 300.0, 1.0
"""So many seconds it looks more often: while a server loads, it makes its files."""

STOPPING_LOOK_S = 0.2

NOT_STARTED = 127
_PARTIAL_S = 0.5
_LONG = 1 << 16
_SET_CHILD_SUBREAPER = 36  # prctl(2)


class Keeper:
    """One server and everything that its session holds.

    Parameters
    ----------
    order
        ``log`` and ``end`` (files), ``most`` (bytes of one log), ``kept`` (older logs),
        ``tether`` (a pipe whose end means stop, and a letter in it: go on alone),
        ``grace`` (seconds for a server that must stop with its tether).
    """

    def __init__(self, order: dict[str, Any], program: list[str]) -> None:
        self.order, self.program = order, program
        self.own, self.born = os.getpid(), time.monotonic()
        self.log = Log(order["log"], order["most"], order["kept"])
        self.lines = Lines(secrets_of(dict(os.environ), program))
        self.asked: list[int] = []
        self.shm: dict[str, int] = {}
        self.code: int | None = None
        self.tether: int = order["tether"]
        self.patience: float | None = None

    def start(self) -> int:
        """Start the program and return its pid."""
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, lambda signum, frame: self.asked.append(signum))
        # functions and not SIG_IGN, which the program would inherit
        for sig in (signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(sig, lambda signum, frame: None)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.woken = woken
        self.output, write_end = os.pipe()
        try:
            child = subprocess.Popen(
                self.program,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.close(write_end)
        self.child = child
        return child.pid

    def keep(self) -> int:
        """Stay until nothing is left of the session; return the program's status."""
        looked = 0.0
        told = 0
        while self.code is None:
            self._turn(self._limit())
            if len(self.asked) > told:
                told = len(self.asked)
                self._tell([self.child.pid], signal.SIGTERM)
            # also while it stops: what it makes now it may not live to remove
            if time.monotonic() - looked >= self._interval():
                looked = time.monotonic()
                self._note_shm()
            if self.patience is not None and time.monotonic() > self.patience:
                break
        # before the survivors are told to go: they know what the dead one shared
        self._note_shm()
        orphans = [(pid, _name(pid)) for pid in self._others()]
        killed = self._end_session()
        self._drain()
        removed = shared_memory.remove(self.shm)
        code = -signal.SIGKILL if self.code is None else self.code
        self._write_end(code, orphans, killed, removed)
        return code if code >= 0 else 128 - code

    def _interval(self) -> float:
        """Return how many seconds may pass between two looks at shared memory."""
        if self.asked:
            return STOPPING_LOOK_S
        young = time.monotonic() - self.born < LOADING_S
        return LOADING_LOOK_S if young else LOOK_S

    def _limit(self) -> float:
        """Return how many seconds nothing need be done if nothing happens."""
        limit = min(_PARTIAL_S if self.lines.rest else LOOK_S, self._interval())
        if self.patience is None:
            return limit
        return min(limit, max(0.05, self.patience - time.monotonic()))

    def _turn(self, limit: float) -> None:
        """Wait for output, a signal or the end of the tether, and take what comes."""
        watched = [fd for fd in (self.output, self.woken, self.tether) if fd >= 0]
        ready, _, _ = select.select(watched, [], [], limit)
        if self.output in ready and self.output >= 0:
            piece = os.read(self.output, _LONG)
            self.log.write(self.lines.add(piece))
            if not piece:
                os.close(self.output)
                self.output = -1
        if not ready:
            self.log.write(self.lines.flush())
        if self.woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.woken, 4096)
        if self.tether in ready and self.tether >= 0:
            # one letter: the server may live without us; the end: we are gone
            if not os.read(self.tether, 1):
                self.asked.append(signal.SIGTERM)
                self.patience = time.monotonic() + float(self.order["grace"])
            os.close(self.tether)
            self.tether = -1
        self._reap()

    def _reap(self) -> None:
        """Collect whatever has ended: orphans are ours too."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child.pid:
                    self.code = os.waitstatus_to_exitcode(status)
                    self.child.returncode = self.code

    def _end_session(self) -> list[int]:
        """End what is left; return the pids that had to be killed."""
        killed: set[int] = set()
        told: set[int] = set()
        for sig, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
            deadline = time.monotonic() + wait
            while others := self._others():
                new = [p for p in others if sig == signal.SIGKILL or p not in told]
                self._tell(new, sig)
                told.update(others)
                if sig == signal.SIGKILL:
                    killed.update(others)
                if time.monotonic() >= deadline:
                    break
                self._note_shm()
                self._turn(0.05)
        return sorted(killed)

    def _drain(self) -> None:
        while self.output >= 0 and select.select([self.output], [], [], 0)[0]:
            self._turn(0)
        self.log.write(self.lines.flush())

    def _others(self) -> list[int]:
        self._reap()
        return [pid for pid in session_members(self.own) if pid != self.own]

    def _note_shm(self) -> None:
        self.shm.update(shared_memory.mapped(self._others()))

    def _tell(self, pids: list[int], sig: int) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, sig)

    def _write_end(
        self,
        code: int,
        orphans: list[tuple[int, str]],
        killed: list[int],
        removed: list[str],
    ) -> None:
        data = {
            "code": code,
            "ended": time.time(),
            "asked": bool(self.asked),
            "orphans": orphans,
            "killed": killed,
            "shm_removed": removed,
            "lost": self.log.lost,
        }
        temp = f"{self.order['end']}.new"
        with contextlib.suppress(OSError):
            try:
                with open(temp, "w", encoding="utf-8") as fh:
                    json.dump(data, fh)
                os.replace(temp, self.order["end"])
            except OSError:
                # a full disk took the name, and not what it is to hold
                os.unlink(temp)


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as fh:
            return fh.read().strip()
    except OSError:
        return ""


def main(argv: list[str]) -> int:
    """Become the leader of a session, start the program, tell its pid, and stay."""
    if os.fork():
        # whoever waits for us is free, and PID 1 has us
        os._exit(0)
    os.setsid()
    keeper = Keeper(json.loads(argv[0]), argv[1:])
    try:
        pid = keeper.start()
        report: dict[str, Any] = {"session": os.getpid(), "pid": pid}
    except (OSError, ValueError) as exc:
        report = {"error": f"cannot start {argv[1]}: {exc}"}
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(report).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    return NOT_STARTED if "error" in report else keeper.keep()
