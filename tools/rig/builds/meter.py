# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Watches the memory of a running build: of all its processes, and of the largest.

What each compile takes is measured by its launcher (:mod:`tools.rig.base.launch`).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    name: str
    rss: int


@dataclass
class Peaks:
    """Highest resident memory seen, in bytes."""

    total: int = 0
    process: int = 0
    process_name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data in bytes."""
        return {
            "total_bytes": self.total,
            "process_bytes": self.process,
            "process_name": self.process_name,
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
        self.peaks.total = max(self.peaks.total, sum(one.rss for one in members))
        for one in members:
            if one.rss > self.peaks.process:
                self.peaks.process, self.peaks.process_name = one.rss, one.name

    def _loop(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self.sample()
            self._stop.wait(max(0.05, self.interval - (time.monotonic() - begun)))

    def _members(self) -> list[_Process]:
        found = []
        for entry in os.listdir(self.proc):
            if not entry.isdigit():
                continue
            try:
                stat = (self.proc / entry / "stat").read_text(errors="replace")
                name, _, rest = stat.partition("(")[2].rpartition(")")
                fields = rest.split()
                if int(fields[3]) == self.session:
                    found.append(_Process(name, int(fields[21]) * _PAGE))
            except (OSError, IndexError):
                # it ended while it was looked at
                continue
        return found
