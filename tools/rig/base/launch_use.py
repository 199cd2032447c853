# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a compile uses: the memory of its processes, and whether the kernel ended one.

Part of :mod:`tools.rig.base.launch`; imports nothing that costs time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    # of Python's own, only what has been loaded before us is free
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")

_KILLED = b"Killed process "
"""In each message of the kernel's OOM killer, for the machine and for a cgroup."""

_RECORD = 16384
"""Bytes; the kernel makes no message longer than 8192, and gives one with each read."""

_SERVERS = (b"sccache\n",)
"""Programs that live longer than the compile whose environment they were born with."""


class Use:
    """Adds up the resident memory of a compile's processes.

    Parameters
    ----------
    root
        The pid of the compiler, or of the cache in front of it.
    mark
        ``NAME=value`` in the environment of processes that a cache's server runs for
        this compile; empty when there is no such server.
    proc
        Where the process table is.
    """

    def __init__(self, root: int, mark: str = "", proc: str = "/proc") -> None:
        self.root = root
        self.names: set[str] = set()
        self._proc = proc
        self._mark = os.fsencode(mark)
        self._strangers: set[str] = set()
        own = f"{proc}/self/task/{os.getpid()}/children"
        self._listed = os.path.exists(own)

    def held(self) -> int:
        """Return what is held now; each process of a tree counts what it maps itself.

        Pages that two processes share count twice, which errs on the safe side.
        """
        found = set(self._below(str(self.root)))
        if self._mark:
            for one in self._marked():
                found.update(self._below(one))
                self.names.add(self._text(f"{one}/comm").strip())
        return sum(self._resident(pid) for pid in found)

    def _below(self, root: str) -> Iterator[str]:
        parents = {} if self._listed else self._parents()
        todo = [root]
        while todo:
            one = todo.pop()
            yield one
            todo += self._children(one) if self._listed else parents.get(one, [])

    def _children(self, pid: str) -> list[str]:
        try:
            tasks = os.listdir(f"{self._proc}/{pid}/task")
        except OSError:
            return []
        found = []
        for task in tasks:
            found += self._text(f"{pid}/task/{task}/children").split()
        return found

    def _parents(self) -> dict[str, list[str]]:
        """Return who started whom, where the kernel keeps no lists of children."""
        found: dict[str, list[str]] = {}
        for pid in self._all():
            fields = self._text(f"{pid}/stat").rpartition(")")[2].split()
            if len(fields) > 1:
                found.setdefault(fields[1], []).append(pid)
        return found

    def _marked(self) -> list[str]:
        found = []
        for pid in self._all():
            if pid in self._strangers:
                continue
            marked = self._mark in self._bytes(f"{pid}/environ").split(b"\0")
            server = self._bytes(f"{pid}/comm") in _SERVERS
            if marked and not server:
                found.append(pid)
            elif not server:
                # the server's fresh copy of itself will be someone else in a moment
                self._strangers.add(pid)
        return found

    def _all(self) -> list[str]:
        return [entry for entry in os.listdir(self._proc) if entry.isdigit()]

    def _resident(self, pid: str) -> int:
        words = self._text(f"{pid}/statm").split()
        return int(words[1]) * _PAGE if len(words) > 1 else 0

    def _text(self, name: str) -> str:
        return self._bytes(name).decode("utf-8", "replace")

    def _bytes(self, name: str) -> bytes:
        try:
            with open(f"{self._proc}/{name}", "rb") as fh:
                return fh.read()
        except OSError:
            # it ended while it was looked at, or is another user's
            return b""


class Curve:
    """Memory over time in at most ``2 * MOST`` points, thinned as it grows longer."""

    MOST = 30

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []

    @property
    def peak(self) -> int:
        """The highest value, in bytes."""
        return max((held for _, held in self.points), default=0)

    def add(self, seconds: float, held: int) -> None:
        """Append a point; of two that become one the higher value stays."""
        self.points.append((round(seconds, 2), held))
        if len(self.points) > 2 * self.MOST:
            pairs = zip(self.points[::2], [*self.points[1::2], (0.0, 0)])
            self.points = [(a[0], max(a[1], b[1])) for a, b in pairs]

    def close(self, seconds: float, largest: int) -> None:
        """End the curve; a short compile is known by what the kernel kept of it."""
        if largest > self.peak:
            highest = [
                i for i, (_, held) in enumerate(self.points) if held == self.peak
            ]
            at = highest[0] if highest else 0
            second = self.points[at][0] if self.points else 0.0
            self.points[at : at + 1] = [(second, largest)]
        end = round(seconds, 2)
        before = [p for p in self.points if p[0] < end]
        self.points = [*(before or [(0.0, self.peak)]), (end, self.points[-1][1])]


def oom_kills(
    proc: str = "/proc", groups: str = "/sys/fs/cgroup", log: str = "/dev/kmsg"
) -> int | None:
    """Return a number that grows when the kernel ends a process for lack of memory.

    That is how often it did so in our cgroup; where the cgroup keeps no count, on the
    machine (``/proc/vmstat``, since Linux 4.13); where that is closed, the number of
    the last message about it in the kernel's log, or -1 when there is none; None where
    nobody may read that either.
    """
    for line in _lines(f"{proc}/self/cgroup"):
        _, controllers, path = [*line.strip().split(":", 2), "", ""][:3]
        if not controllers:
            tops, name = [groups, f"{groups}/unified"], "memory.events"
        elif "memory" in controllers.split(","):
            tops, name = [f"{groups}/memory"], "memory.oom_control"
        else:
            continue
        for top in tops:
            at = path.rstrip("/")
            while True:
                count = _count(f"{top}{at}/{name}", "oom_kill")
                if count is not None:
                    return count
                if not at:
                    break
                at = at.rpartition("/")[0]
    count = _count(f"{proc}/vmstat", "oom_kill")
    return _last_kill(log) if count is None else count


def _last_kill(log: str) -> int | None:
    """Return the sequence number of the newest message that tells of such a kill."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    last = -1
    try:
        while record := _next_record(fd):
            head, _, text = record.partition(b";")
            if _KILLED in text:
                last = int(head.split(b",")[1])
    except (OSError, ValueError, IndexError):
        # a log that cannot be understood says nothing
        return None
    finally:
        os.close(fd)
    return last


def _next_record(fd: int) -> bytes:
    """Return one message of the kernel; nothing at the end of what there is."""
    while True:
        try:
            return os.read(fd, _RECORD)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            # the oldest were overwritten meanwhile: the next read goes on after them
            continue


def _count(file: str, key: str) -> int | None:
    for line in _lines(file):
        words = line.split()
        if len(words) == 2 and words[0] == key and words[1].isdigit():
            return int(words[1])
    return None


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as fh:
            return fh.readlines()
    except OSError:
        return []
