# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stands between a long step and the program it runs, so that the program never
outlives the step.

Started by :func:`tools.rig.base.run.stream` as ``python -I minder.py FD NICE OOM --
argv...``. It leads a session of its own, lowers the priority of everything below it,
starts the program and waits for whichever comes first: the end of the program, or the
end of the pipe FD, whose other end only our parent holds. When the parent dies, even by
SIGKILL, the kernel closes that end and the whole session is told to stop. Uses nothing
but the standard library.
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


def main(argv: list[str]) -> int:
    """Mind one program; return its exit status in the shell's convention (128 +
    signal).
    """
    fd, nice, oom = int(argv[0]), int(argv[1]), int(argv[2])
    with contextlib.suppress(OSError):
        os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as fh:
        fh.write(str(oom))
    try:
        child = subprocess.Popen(argv[argv.index("--") + 1 :])
    except OSError as exc:
        print(
            f"{argv[-1] if not exc.filename else exc.filename}: {exc.strerror}",
            file=sys.stderr,
        )
        return 127
    pidfd = os.pidfd_open(child.pid)
    ready, _, _ = select.select([fd, pidfd], [], [])
    if pidfd not in ready:
        _end_session()
        return 128 + signal.SIGTERM
    code = child.wait()
    return code if code >= 0 else 128 - code


def _end_session() -> None:
    own = os.getpid()
    for sig, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 0.0)):
        others = [pid for pid in _members(own) if pid != own]
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, sig)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and len(_members(own)) > 1:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.05)


def _members(session: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"/proc/{entry}/stat", errors="replace") as fh,
            ):
                stat = fh.read()
                fields = stat[stat.rindex(")") + 2 :].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
