# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory of a build, read from a made process table."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
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
        argv: Sequence[str] | None = (),
        *,
        session: int = SESSION,
        start: int = 1,
    ) -> None:
        """Add or replace a process; argv None hides the command line."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", parent, pid, session, *[0] * 15, start, 0, pages]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
        line = folder / "cmdline"
        if argv is not None:
            line.write_bytes(b"".join(a.encode() + b"\0" for a in argv))
        else:
            line.unlink(missing_ok=True)


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
        "objects_bytes": {},
    }


def test_object_by_object(table: Table) -> None:
    """A compile's whole tree counts for the object that it makes."""
    compile_ = ["nvcc", "-c", "k.cu", "-o", "dir/k.cu.o"]
    table.add(60, "ccache", 50, 1, ["ccache", *compile_])
    table.add(61, "nvcc", 60, 1, compile_)
    table.add(62, "sh", 61, 1)
    table.add(63, "g++-11", 62, 2, ["g++-11", "-o", "/tmp/stub.o"])
    table.add(64, "cicc", 61, 100)
    table.add(70, "c++", 50, 1, ["c++", "-o", "b.cpp.o", "-c", "b.cpp"])
    table.add(71, "cc1plus", 70, 30)
    meter = Meter(SESSION, proc=table.root)
    meter.sample()
    table.add(64, "cicc", 61, 50)
    meter.sample()
    assert meter.peaks.objects == {"dir/k.cu.o": 105 * PAGE, "b.cpp.o": 31 * PAGE}


def test_what_makes_no_object(table: Table) -> None:
    """Links, commands without an output and hidden ones are no compiles."""
    table.add(60, "c++", 50, 1, ["c++", "-shared", "-o", "lib.so"])
    table.add(61, "g++", 50, 1, ["g++", "--version", "-o"])
    table.add(62, "nvcc", 50, 1, None)
    meter = Meter(SESSION, proc=table.root)
    meter.sample()
    assert meter.peaks.objects == {}


def test_a_pid_that_comes_back(table: Table) -> None:
    """Another process of the same number is another compile."""
    meter = Meter(SESSION, proc=table.root)
    table.add(60, "g++", 50, 5, ["g++", "-o", "a.o"], start=10)
    meter.sample()
    table.add(60, "g++", 50, 7, ["g++", "-o", "b.o"], start=20)
    meter.sample()
    assert meter.peaks.objects == {"a.o": 5 * PAGE, "b.o": 7 * PAGE}


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
