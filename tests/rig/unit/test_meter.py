# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory of a build, read from a made process table."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tools.rig.builds.meter import Meter

PAGE = os.sysconf("SC_PAGE_SIZE")
SESSION = 50


class Table:
    """A process table; memory in pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "self").mkdir(parents=True)

    def add(
        self,
        pid: int,
        name: str,
        parent: int,
        pages: int,
        *,
        session: int = SESSION,
    ) -> None:
        """Add or replace a process."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", parent, pid, session, *[0] * 15, 1, 0, pages]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with a ninja in it."""
    made = Table(tmp_path / "proc")
    made.add(50, "ninja", 1, 1)
    made.add(99, "server", 1, 5000, session=99)
    return made


def test_sums_the_session(table: Table) -> None:
    """All processes of the build, and the largest of them, and nobody else's."""
    meter = Meter(SESSION, proc=table.root)
    table.add(51, "cc1 (plus) x", 50, 10)
    meter.sample()
    table.add(51, "cc1 (plus) x", 50, 4)
    meter.sample()
    peaks = meter.stop()
    assert peaks.total == 11 * PAGE and peaks.process == 10 * PAGE
    assert peaks.process_name == "cc1 (plus) x"
    assert peaks.to_json() == {
        "total_bytes": 11 * PAGE,
        "process_bytes": 10 * PAGE,
        "process_name": "cc1 (plus) x",
    }


def test_processes_that_end(table: Table) -> None:
    """What ends while it is looked at does no harm."""
    (table.root / "70").mkdir()
    (table.root / "71").mkdir()
    (table.root / "71" / "stat").write_text("")
    meter = Meter(SESSION, proc=table.root)
    meter.sample()
    assert meter.peaks.total == PAGE


def test_thread(table: Table) -> None:
    """Samples are taken until it is stopped, and none after."""
    meter = Meter(SESSION, interval=0.01, proc=table.root).start()
    deadline = time.monotonic() + 10
    while not meter.peaks.total and time.monotonic() < deadline:
        time.sleep(0.01)
    assert meter.stop().total == PAGE
    table.add(80, "late", 50, 1000)
    time.sleep(0.05)
    assert meter.peaks.total == PAGE


def test_never_started(table: Table) -> None:
    """A meter that was never started has seen nothing."""
    assert Meter(SESSION, proc=table.root).stop().total == 0
