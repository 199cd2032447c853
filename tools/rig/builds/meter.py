# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Watches what a running build holds: memory of all, of the largest, of each compile."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")
_DRIVERS = frozenset({"ccache", "sccache", "nvcc", "g++", "c++", "clang++"})


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
        self._outputs: dict[int, str | None] = {}
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
        held = {pid: rss for pid, (_, _, rss) in members.items()}
        self.peaks.total = max(self.peaks.total, sum(held.values()))
        children: dict[int, list[int]] = {}
        for pid, (_, parent, rss) in members.items():
            children.setdefault(parent, []).append(pid)
            if rss > self.peaks.process:
                self.peaks.process = rss
                self.peaks.process_name = members[pid][0]
        for pid, (name, parent, _) in members.items():
            if name not in _DRIVERS or members.get(parent, ("",))[0] in _DRIVERS:
                continue
            output = self._output(pid)
            if output:
                tree = sum(held[p] for p in _tree(pid, children))
                known = self.peaks.objects.get(output, 0)
                self.peaks.objects[output] = max(known, tree)

    def _loop(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self.sample()
            self._stop.wait(max(0.05, self.interval - (time.monotonic() - begun)))

    def _members(self) -> dict[int, tuple[str, int, int]]:
        found = {}
        for entry in os.listdir(self.proc):
            if not entry.isdigit():
                continue
            try:
                stat = (self.proc / entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            end = stat.rindex(")")
            fields = stat[end + 2 :].split()
            if int(fields[3]) == self.session:
                name = stat[stat.index("(") + 1 : end]
                found[int(entry)] = (name, int(fields[1]), int(fields[21]) * _PAGE)
        return found

    def _output(self, pid: int) -> str | None:
        if pid not in self._outputs:
            try:
                words = (self.proc / str(pid) / "cmdline").read_bytes().split(b"\0")
            except OSError:
                return None
            output = None
            if b"-o" in words[:-1]:
                named = os.fsdecode(words[words.index(b"-o") + 1])
                output = named if named.endswith(".o") else None
            self._outputs[pid] = output
        return self._outputs[pid]


def _tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children.get(one, [])
    return found
