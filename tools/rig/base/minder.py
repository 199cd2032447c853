# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stands between a long step and the program it runs, which must not outlive the step.

Started by :func:`tools.rig.base.run.stream` as ``python -I minder.py FD NICE OOM --
argv...``. It leads a session of its own, starts the program with a lower priority and
waits for whichever comes first: the end of the program, a SIGTERM, or the end of the
pipe FD, whose other end only our parent holds. When the parent dies, even by SIGKILL,
the kernel closes that end. In each case everything that is left in the session is told
to stop. Uses nothing but the standard library, and no file beside this one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""

KILL_S = 2.0
"""Seconds to wait for a killed tree; what hangs in the kernel is then left behind."""

SETTLE_S = 0.5
"""Seconds that helpers of a finished program get to end by themselves."""

NOT_STARTED = 127


def main(argv: list[str]) -> int:
    """Mind one program; return its exit status as a shell says it (128 + signal)."""
    parent, nice, oom = int(argv[0]), int(argv[1]), int(argv[2])
    stopped: list[int] = []
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.signal(signal.SIGTERM, lambda signum, frame: stopped.append(signum))
    _lower(nice)

    def first_to_die() -> None:
        # in the child alone: were the minder killed first, nobody would mind the rest
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as fh:
            fh.write(str(oom))

    program = argv[argv.index("--") + 1 :]
    try:
        child = subprocess.Popen(program, preexec_fn=first_to_die if oom else None)
    except (OSError, ValueError) as exc:
        print(f"cannot start {program[0]}: {exc}", file=sys.stderr)
        return NOT_STARTED
    while child.poll() is None and not stopped:
        ready, _, _ = select.select([parent, woken], [], [])
        if parent in ready:
            break
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
    code = child.poll()
    if code is None or not _alone_within(SETTLE_S):
        _end_session(child)
    if code is None:
        return 128 + signal.SIGTERM
    return code if code >= 0 else 128 - code


def _lower(nice: int) -> None:
    """Let everybody else go first.

    Where the kernel groups tasks by session (sched_autogroup, the default of most
    distributions) niceness only orders the tasks of one session: a niced build took
    half of a busy machine here. The group's own weight decides between sessions.
    """
    with contextlib.suppress(OSError):
        os.nice(nice)
    if nice:
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as fh:
            fh.write(str(nice))


def _end_session(child: subprocess.Popen[bytes]) -> None:
    told: set[int] = set()
    for sig, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + wait
        while others := _others():
            for pid in others:
                # each gets SIGTERM once, also one that was forked in the meantime
                if sig == signal.SIGKILL or pid not in told:
                    with contextlib.suppress(OSError):
                        os.kill(pid, sig)
            told.update(others)
            if time.monotonic() >= deadline:
                break
            child.poll()
            time.sleep(0.02)


def _alone_within(seconds: float) -> bool:
    """Wait until nobody else is left in the session, and say whether that is so."""
    deadline = time.monotonic() + seconds
    while _others():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _others() -> list[int]:
    """Return the living members of our session but ourselves."""
    own = os.getpid()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != own:
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{entry}/stat", errors="replace") as fh,
            ):
                stat = fh.read()
                fields = stat[stat.rindex(")") + 2 :].split()
                if int(fields[3]) == own and fields[0] not in "ZX":
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
