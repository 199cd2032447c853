# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starts a compiler when the admission service has room for it.

Stands in front of each compile of a build as ``rig-admit [ccache] compiler args...``
(see :mod:`tools.rig.builds.admission.client`). Whatever is no compile is executed at
once. A compile waits for its turn, runs as a child with our own files, and is measured
for the next build; how it ends is how we end. One that the kernel ended for lack of
memory is run again, at most twice, when there is room for what it had grown to.

Uses nothing but the standard library and the files ``launch_*.py`` beside this one, and
loads only what Python has in it already until the compiler runs.
"""

from __future__ import annotations

import os
import sys
import time

from tools.rig.base import launch_words
from tools.rig.base.launch_child import Child, Ended
from tools.rig.base.launch_line import dumps
from tools.rig.base.launch_room import Room
from tools.rig.base.launch_use import oom_kills

TYPE_CHECKING = False
if TYPE_CHECKING:
    # of Python's own, only what has been loaded before us is free
    import signal
    from collections.abc import Mapping, Sequence
else:
    # the same without its names for people, which take 6 ms to make
    import _signal as signal

TRIES = 3
"""How often a compile is run at most that runs out of memory."""

NOT_STARTED = 127
_MIB = 1 << 20


def main(words: Sequence[str]) -> int:
    """Run the command, or become it; return what to exit with, minus a signal's number.

    Parameters
    ----------
    words
        The command, with the compile cache in front where there is one.
    """
    if not words:
        _say("usage: rig-admit [CACHE] COMPILER ARGUMENTS...")
        return 2
    folder = os.environ.get("RIG_ADMISSION", "")
    # a compile inside a compile has its room already
    if folder and "RIG_COMPILE" not in os.environ:
        found = launch_words.read(words, os.getcwd(), os.environ.get("RIG_CACHE", ""))
        if found is not None:
            if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
                # while it waits, Ctrl-C ends it without a word of Python's
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            return Launch(words, found, folder, os.environ).run()
    return become(words)


def become(words: Sequence[str]) -> int:
    """Execute the command in our place; return only when that is not possible."""
    for one in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these two, which the program would inherit
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))
    except OSError as exc:
        _say(f"cannot start {words[0]}: {exc.strerror}")
        return NOT_STARTED


def finish(code: int) -> None:
    """End as the compiler ended: with its code, or by the signal that ended it."""
    sys.stdout.flush()
    if code < 0:
        import resource

        # one core dump is enough
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code
    os._exit(code)


class Launch:
    """One compile, from the question for room to the line in the events file.

    Parameters
    ----------
    words
        The command.
    found
        What it compiles.
    folder
        Where the service has its socket.
    env
        The environment, with the variables of the build in it.
    """

    def __init__(
        self,
        words: Sequence[str],
        found: launch_words.Compile,
        folder: str,
        env: Mapping[str, str],
    ) -> None:
        self.found = found
        self.asked = time.monotonic()
        self._events = env.get("RIG_ADMISSION_EVENTS", "")
        cap = env.get("RIG_ADMISSION_CAP", "")
        owner = env.get("RIG_ADMISSION_OWNER", "")
        ident = f"{os.getpid()}-{int(self.asked * 1000)}"
        self.about: dict[str, object] = {
            "id": ident,
            "object": found.object,
            "cwd": os.getcwd(),
            "kind": found.kind,
            "build": env.get("RIG_ADMISSION_BUILD", ""),
            "predictions": env.get("RIG_ADMISSION_PREDICTIONS", ""),
            "cap": int(cap) if cap.isdigit() else 0,
            "pid": os.getpid(),
            "owner": int(owner) if owner.isdigit() else 0,
            "asked": self.asked,
        }
        self.room = Room(folder, self.about)
        self.child = Child(words, found, ident, self.room)

    def run(self) -> int:
        """Wait, run, measure, tell; return the exit code or minus a signal."""
        self.room.reach()
        attempts, needs = 0, 0
        while True:
            self.room.wait(needs)
            before = oom_kills()
            attempts += 1
            ended = self.child.run()
            grown = before is not None and oom_kills() != before
            # one that was told to stop was killed by whoever told it
            if ended.stopped or not (grown and ended.killed):
                break
            needs = max(needs, ended.curve.peak)
            self.room.ran_out(needs)
            if attempts == TRIES:
                break
            self.child.forget()
        self.room.end(ended.code, ended.cache)
        self._tell(ended, attempts, needs > 0)
        self.child.show()
        if needs:
            told = f"({needs / _MIB:.0f} MiB, tried {attempts} times)"
            _say(f"memory ran out under {self.found.object} {told}")
        return ended.code

    def _tell(self, ended: Ended, attempts: int, ran_out: bool) -> None:
        """Append the event as one line in one write."""
        event: dict[str, object] = {
            "object": self.found.object,
            "cwd": self.about["cwd"],
            "source": self.found.source,
            "kind": self.found.kind,
            "asked": self.asked,
            "started": ended.started,
            "ended": ended.started + ended.seconds,
            "wall": ended.wall,
            "seconds": ended.seconds,
            "peak_bytes": ended.curve.peak,
            "curve": ended.curve.points,
            "code": ended.code,
            "attempts": attempts,
            "oom": ran_out,
            "cache": ended.cache,
            "build": self.about["build"],
        }
        if not self._events:
            return
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self._events, flags, 0o600)
            os.write(fd, dumps(event).encode("ascii") + b"\n")
            os.close(fd)
        except OSError:
            # a full disk stops the compiler itself; a missing line stops nothing
            return


def _say(text: str) -> None:
    os.write(2, f"rig-admit: {text}\n".encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
