# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The compiler itself: started, measured while it runs, its words held until the end.

Part of :mod:`tools.rig.base.launch`.
"""

from __future__ import annotations

import os
import time

from tools.rig.base.launch_near import known
from tools.rig.base.launch_room import Room
from tools.rig.base.launch_use import Curve, Use
from tools.rig.base.launch_words import Compile

TYPE_CHECKING = False
if TYPE_CHECKING:
    # of Python's own, only what has been loaded before us is free
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Any
else:
    # the same without its names for people, which take 6 ms to make
    import _signal as signal

SAMPLE_S = 0.5
"""Seconds between two looks at the memory of a compile."""

_FIRST_LOOKS_S = (0.03, 0.1, 0.25)
_TAIL = 1 << 16
_WHOLE = 1 << 23
"""Bytes of words that are looked through at once; no error list comes near."""
_KILLED = (137, -9, 247)
"""A shell's word for SIGKILL, our own, and that of programs that pass on minus 9."""

_SAY_KILLED = (b"killed", b"signal 9", b"signal: 9", b"sigkill")
_NOT_STARTED = 127
_SCORE = "/proc/self/oom_score_adj"


class Ended:
    """How one run of a compiler went; times are CLOCK_MONOTONIC and seconds."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.wall = time.time()
        self.seconds = 0.0
        self.code = 0
        self.curve = Curve()
        self.cache = ""
        self.killed = False
        self.stopped = False


class Child:
    """Runs one command as often as needed.

    Parameters
    ----------
    words
        The command.
    found
        What it compiles.
    ident
        ``RIG_COMPILE`` of its processes.
    room
        Is told what they hold.
    """

    def __init__(
        self, words: Sequence[str], found: Compile, ident: str, room: Room
    ) -> None:
        self._words = list(words)
        self._cache = found.cache
        self._kind = found.kind
        self._ident = ident
        self._room = room
        self._score = _score()
        self._said = -1
        self._statistics = -1

    def run(self) -> Ended:
        """Run it once to its end; signals that we get are passed on."""
        ended = Ended()
        self._said = _memory_file()
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        kept = {signal.SIGCHLD: signal.signal(signal.SIGCHLD, lambda *_: None)}
        pid, told = 0, 0

        def pass_on(signum: int, frame: object) -> None:
            nonlocal told
            ended.stopped, told = True, signum
            if pid:
                os.kill(pid, signum)

        # before there is a compiler: else a signal could end us alone
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(one) != signal.SIG_IGN:
                kept[one] = signal.signal(one, pass_on)
        # as the tree's, while the compiler takes it over
        _set_score(self._score)
        try:
            pid = self._spawn()
        except OSError as exc:
            os.write(2, f"cannot start {self._words[0]}: {exc.strerror}\n".encode())
            ended.code = _NOT_STARTED
            _restore(kept, woken, wake)
            return ended
        if told:
            os.kill(pid, told)
        # of the two, the large one dies first
        _set_score(self._score // 2)
        mark = f"RIG_COMPILE={self._ident}" if self._cache == "sccache" else ""
        use = Use(pid, mark)
        self._follow(pid, woken, use, ended)
        # from here on its number may be another process's, and no signal goes there
        child, pid = pid, 0
        _reap(child, ended)
        _restore(kept, woken, wake)
        ended.cache = self._hit_or_miss(use, ended.code)
        ended.killed = ended.code in _KILLED or (ended.code != 0 and self._say_killed())
        return ended

    def show(self) -> None:
        """Print what the last run said on standard error."""
        if self._said < 0:
            return
        os.lseek(self._said, 0, os.SEEK_SET)
        while text := os.read(self._said, _WHOLE):
            rest = memoryview(known(text, os.environ, os.getcwd()))
            while rest:
                try:
                    rest = rest[os.write(2, rest) :]
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    # nobody listens any more
                    return
        self.forget()

    def forget(self) -> None:
        """Drop what the last run said."""
        if self._said >= 0:
            os.close(self._said)
        self._said = -1

    def _follow(self, pid: int, woken: int, use: Use, ended: Ended) -> None:
        """Measure until the end; it is not collected, so that its number stays its."""
        import select

        poll = select.poll()
        poll.register(woken, select.POLLIN)
        looks = [ended.started + after for after in _FIRST_LOOKS_S]
        while True:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            now = time.monotonic()
            if now >= looks[0]:
                held = use.held()
                ended.curve.add(now - ended.started, held)
                self._room.use(ended.started, held, pid)
                looks = looks[1:] or [now + SAMPLE_S]
            poll.poll(max(0.0, looks[0] - time.monotonic()) * 1000 + 1)
            try:
                os.read(woken, 4096)
            except BlockingIOError:
                continue
        ended.seconds = time.monotonic() - ended.started

    def _spawn(self) -> int:
        actions: list[tuple[int, ...]] = []
        if self._said >= 0:
            ours, theirs = os.fstat(1), os.fstat(2)
            actions.append((os.POSIX_SPAWN_DUP2, self._said, 2))
            if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino):
                # both go to one place: then in the order in which they are written
                actions.append((os.POSIX_SPAWN_DUP2, self._said, 1))
        env = {**os.environ, "RIG_COMPILE": self._ident}
        if self._cache == "ccache":
            self._statistics = _memory_file()
            if self._statistics >= 0:
                place = f"/proc/{os.getpid()}/fd/{self._statistics}"
                env["CCACHE_STATSLOG"] = place
        return os.posix_spawnp(
            self._words[0],
            self._words,
            env,
            file_actions=actions,
            # Python ignores these two, which the compiler would inherit
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )

    def _say_killed(self) -> bool:
        if self._said < 0:
            return False
        size = os.lseek(self._said, 0, os.SEEK_END)
        text = os.pread(self._said, _TAIL, max(0, size - _TAIL)).lower()
        return any(word in text for word in _SAY_KILLED)

    def _hit_or_miss(self, use: Use, code: int) -> str:
        """Return what is known for sure of the cache."""
        if self._statistics >= 0:
            text = os.pread(self._statistics, _TAIL, 0)
            os.close(self._statistics)
            self._statistics = -1
            _append(os.environ.get("CCACHE_STATSLOG", ""), text)
            if b"_cache_hit" in text:
                return "hit"
            return "miss" if b"cache_miss" in text else ""
        if self._cache != "sccache" or self._kind != "cuda" or code != 0:
            return ""
        # the preprocessor also runs for a hit; what makes code of it does not, and
        # takes so long that it cannot have been overlooked
        return "miss" if use.names & {"cicc", "ptxas"} else "hit"


def _reap(pid: int, ended: Ended) -> None:
    """Take in how a child that has ended did so."""
    _, status, usage = os.wait4(pid, 0)
    ended.code = os.waitstatus_to_exitcode(status)
    # the kernel's mark, in KiB, of the largest process that was waited for
    ended.curve.close(ended.seconds, usage.ru_maxrss * 1024)


def _append(file: str, text: bytes) -> None:
    """Pass on what was meant for a file that all compiles write to."""
    if not file or not text:
        return
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(file, flags, 0o666)
        os.write(fd, text)
        os.close(fd)
    except OSError:
        # the cache would not have failed either
        return


def _restore(kept: Mapping[Any, Any], woken: int, wake: int) -> None:
    """Give signals back to whom they belonged before a run."""
    for one, handler in kept.items():
        signal.signal(one, handler)
    signal.set_wakeup_fd(-1)
    os.close(woken)
    os.close(wake)


def _memory_file() -> int:
    """Return a file without a name, or -1 where the kernel has none to give."""
    try:
        return os.memfd_create("rig-compile")
    except (OSError, AttributeError):
        return -1


def _score() -> int:
    try:
        with open(_SCORE) as fh:
            return int(fh.read())
    except (OSError, ValueError):
        return 0


def _set_score(value: int) -> None:
    if value <= 0:
        return
    try:
        with open(_SCORE, "w") as fh:
            fh.write(str(value))
    except OSError:
        # not below the lowest that the system gave us
        return
