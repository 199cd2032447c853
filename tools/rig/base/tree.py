# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finds and ends everything that one session of processes holds.

Members are found by session id and not by parent, since a killed ``pip`` leaves its
compilers to PID 1, and a process group of its own (``ninja`` makes one for every
compile) does not leave the session. A program that makes a session for itself, such as
the server of a compile cache, did so on purpose and is not ours to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL for a tree that is told to stop."""

KILL_S = 2.0
"""Seconds to wait for a killed tree; what hangs in the kernel is then left behind."""

_LOOK_S = 0.02


def stop_tree(pid: int, grace: float = GRACE_S) -> None:
    """End the session that `pid` leads: SIGTERM, a pause, SIGKILL to what is left.

    A second Ctrl-C cuts the pause short; it is raised again when the tree is gone.

    Parameters
    ----------
    pid
        Session id.
    grace
        Seconds that the members get to stop by themselves.

    Raises
    ------
    ValueError
        When `pid` is our own session.
    """
    if pid == os.getsid(0):
        raise ValueError("a process cannot stop the session it lives in")
    impatient: KeyboardInterrupt | None = None
    for sig, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_S)):
        try:
            if _gone_after(pid, sig, wait):
                break
        except KeyboardInterrupt as again:
            impatient = again
    if impatient is not None:
        raise impatient


def session_members(session: int) -> list[int]:
    """Return the pids of living (not zombie) processes whose session id is `session`.

    Session 0 holds the kernel's threads and, in a container, whatever was started from
    outside; session 1 belongs to init. Neither can be ours, so they count as empty.
    """
    if session <= 1:
        return []
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path("/proc", entry, "stat").read_text(errors="replace")
            fields = stat[stat.rindex(")") + 2 :].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry))
    return found


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that one road ends every tree.

    A SIGHUP that is ignored stays ignored: a build under ``nohup`` outlives its
    terminal. Outside the main thread, where Python takes no signals, nothing changes.
    """

    def handler(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    for sig in (signal.SIGTERM, signal.SIGHUP):
        if sig == signal.SIGHUP and signal.getsignal(sig) is signal.SIG_IGN:
            continue
        with contextlib.suppress(ValueError):
            kept[sig] = signal.signal(sig, handler)
    try:
        yield
    finally:
        for sig, old in kept.items():
            # None: a handler that was not set from Python and cannot be put back
            signal.signal(sig, signal.SIG_DFL if old is None else old)


def _gone_after(session: int, sig: signal.Signals, wait: float) -> bool:
    """Send `sig` to all members, and say whether they are gone after `wait` seconds."""
    deadline = time.monotonic() + wait
    told: set[int] = set()
    while members := session_members(session):
        for member in members:
            # each gets SIGTERM once, since many programs read a second one as "at once"
            if sig == signal.SIGKILL or member not in told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member, sig)
        told.update(members)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
