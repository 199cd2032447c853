# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Watches the memory of a running build: of all, of the largest, of each compile."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import regex as re

_PAGE = os.sysconf("SC_PAGE_SIZE")
_DRIVER = re.compile(
    r"(?:s?ccache|nvcc|(?:.*-)?(?:g\+\+|c\+\+|gcc|cc|clang(?:\+\+)?)(?:-\d+)?)"
)


class _Process(NamedTuple):
    name: str
    parent: int
    rss: int
    start: int


@dataclass
class Peaks:
    """Highest resident memory seen, in bytes. ``objects`` maps outputs to theirs."""

    total: int = 0
    process: int = 0
    process_name: str = ""
    objects: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain data in bytes."""
        return {
            "total_bytes": self.total,
            "process_bytes": self.process,
            "process_name": self.process_name,
            "objects_bytes": dict(self.objects),
        }


class Meter:
    """Samples the session of a build from a thread.

    Parameters
    ----------
    session
        Session id of the build (see :func:`tools.rig.base.run.stream`).
    interval
        Seconds between samples. A compile shorter than that may be missed.
    proc
        Where the process table is.
    """

    def __init__(
        self, session: int, interval: float = 0.5, proc: Path = Path("/proc")
    ) -> None:
        self.session = session
        self.interval = interval
        self.proc = proc
        self.peaks = Peaks()
        self._outputs: dict[tuple[int, int], str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> Meter:
        """Start sampling."""
        self._thread.start()
        return self

    def stop(self) -> Peaks:
        """Stop sampling and return what was seen."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=self.interval + 5)
        return self.peaks

    def sample(self) -> None:
        """Take one sample."""
        members = self._members()
        self.peaks.total = max(self.peaks.total, sum(p.rss for p in members.values()))
        children: dict[int, list[int]] = {}
        for pid, one in members.items():
            children.setdefault(one.parent, []).append(pid)
            if one.rss > self.peaks.process:
                self.peaks.process, self.peaks.process_name = one.rss, one.name
        for pid, one in members.items():
            if not _DRIVER.fullmatch(one.name) or _below_driver(one, members):
                continue
            output = self._output(pid, one.start)
            if output:
                tree = sum(members[p].rss for p in _tree(pid, children))
                known = self.peaks.objects.get(output, 0)
                self.peaks.objects[output] = max(known, tree)

    def _loop(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self.sample()
            self._stop.wait(max(0.05, self.interval - (time.monotonic() - begun)))

    def _members(self) -> dict[int, _Process]:
        found = {}
        for entry in os.listdir(self.proc):
            if not entry.isdigit():
                continue
            try:
                stat = (self.proc / entry / "stat").read_text(errors="replace")
                name, _, rest = stat.partition("(")[2].rpartition(")")
                fields = rest.split()
                if int(fields[3]) == self.session:
                    found[int(entry)] = _Process(
                        name, int(fields[1]), int(fields[21]) * _PAGE, int(fields[19])
                    )
            except (OSError, IndexError):
                # it ended while it was looked at
                continue
        return found

    def _output(self, pid: int, start: int) -> str:
        # a pid alone comes back in a long build
        key = (pid, start)
        if key not in self._outputs:
            try:
                words = (self.proc / str(pid) / "cmdline").read_bytes().split(b"\0")
            except OSError:
                return ""
            named = ""
            if b"-o" in words[:-1]:
                named = os.fsdecode(words[words.index(b"-o") + 1])
            self._outputs[key] = named if named.endswith(".o") else ""
        return self._outputs[key]


def _below_driver(one: _Process, members: dict[int, _Process]) -> bool:
    """Say whether another driver started this one; nvcc does so through a shell."""
    while one.parent in members:
        one = members[one.parent]
        if _DRIVER.fullmatch(one.name):
            return True
    return False


def _tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children.get(one, [])
    return found
