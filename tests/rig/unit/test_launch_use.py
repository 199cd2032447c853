# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The launcher's measuring: a tree's memory, a curve, the kernel's count of kills."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.rig.base.launch_use import Curve, Use, oom_kills

PAGE = os.sysconf("SC_PAGE_SIZE")


class Table:
    """A process table in a folder."""

    def __init__(self, folder: Path, listed: bool = True) -> None:
        self.path = folder
        self.listed = listed
        if listed:
            own = folder / "self" / "task" / str(os.getpid())
            own.mkdir(parents=True)
            (own / "children").touch()

    def add(
        self, pid: int, parent: int, pages: int, comm: str = "cc1plus", mark: str = ""
    ) -> None:
        """Add a process."""
        task = self.path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (task / "children").touch()
        one = self.path / str(pid)
        (one / "statm").write_text(f"9999 {pages} 1 1 0 1 0\n")
        (one / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1 0\n")
        (one / "comm").write_text(f"{comm}\n")
        (one / "environ").write_bytes(b"A=b\0" + mark.encode() + b"\0")
        above = self.path / str(parent) / "task" / str(parent) / "children"
        if above.exists():
            above.write_text(f"{above.read_text()}{pid} ")


@pytest.mark.parametrize("listed", [True, False])
def test_tree(tmp_path: Path, listed: bool) -> None:
    """Everything below the compiler counts, with and without lists of children."""
    table = Table(tmp_path, listed)
    table.add(10, 1, 3)
    table.add(11, 10, 5)
    table.add(12, 11, 7)
    table.add(20, 1, 1000)
    assert Use(10, proc=str(tmp_path)).held() == 15 * PAGE


def test_nothing_left(tmp_path: Path) -> None:
    """A compiler that has ended holds nothing."""
    Table(tmp_path)
    assert Use(10, proc=str(tmp_path)).held() == 0


def test_server_of_a_cache(tmp_path: Path) -> None:
    """What a cache's server runs for us counts, and the server itself does not."""
    table, mark = Table(tmp_path), "RIG_COMPILE=5"
    table.add(10, 1, 1)
    table.add(30, 1, 100, "sccache", mark)
    table.add(31, 30, 20, "cicc", mark)
    table.add(32, 30, 40, "cicc", "RIG_COMPILE=55")
    use = Use(10, mark, proc=str(tmp_path))
    assert use.held() == 21 * PAGE
    # a second look asks only those that are new
    (tmp_path / "32" / "environ").write_bytes(mark.encode())
    assert use.held() == 21 * PAGE
    assert use.names == {"cicc"}


def test_curve_stays_short() -> None:
    """A long compile keeps its highest points and its times in order."""
    curve = Curve()
    for at in range(1000):
        curve.add(at / 2, 900 if at == 501 else at % 7)
    curve.close(500.0, 0)
    assert curve.peak == 900
    assert len(curve.points) <= 2 * Curve.MOST + 1
    assert curve.points == sorted(curve.points)
    assert curve.points[-1][0] == 500.0


def test_curve_of_a_short_compile() -> None:
    """Without any look, the kernel's own mark tells what it held."""
    curve = Curve()
    curve.close(0.02, 77)
    assert curve.points == [(0.0, 77), (0.02, 77)]


def test_curve_is_mended() -> None:
    """A peak between two looks is put where the highest look was."""
    curve = Curve()
    for at, held in ((0.1, 5), (0.5, 9), (1.0, 2)):
        curve.add(at, held)
    curve.close(1.2, 30)
    assert curve.points == [(0.1, 5), (0.5, 30), (1.0, 2), (1.2, 2)]


def group(folder: Path, line: str, file: str, count: int) -> tuple[str, str]:
    """Write a cgroup and its count."""
    proc, groups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(line)
    (proc / "vmstat").write_text("pgfault 5\noom_kill 99\n")
    (groups / file).parent.mkdir(parents=True)
    (groups / file).write_text(f"oom 7\noom_kill {count}\n")
    return str(proc), str(groups)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/a/b\n", "a/b/memory.events"),
        ("0::/a/b\n", "a/memory.events"),
        ("3:cpu:/\n4:memory:/a\n0::/\n", "memory/a/memory.oom_control"),
        ("4:memory,x:/outside\n", "memory/memory.oom_control"),
        ("0::/a\n", "unified/a/memory.events"),
    ],
)
def test_kills_of_our_group(tmp_path: Path, line: str, file: str) -> None:
    """The nearest group that counts is asked, of either version."""
    assert oom_kills(*group(tmp_path, line, file, 4)) == 4


def test_kills_of_the_machine(tmp_path: Path) -> None:
    """Where no group counts, the machine's own number does; else nothing is known."""
    proc, groups = group(tmp_path, "0::/\n", "other", 4)
    assert oom_kills(proc, groups) == 99
    nowhere = str(tmp_path / "none")
    assert oom_kills(nowhere, groups, nowhere) is None


KILL = b"3,41,9,-;Out of memory: Killed process 7 (cicc) total-vm:1kB\n DEVICE=x\n"


@pytest.mark.parametrize(
    ("records", "number"),
    [
        ([KILL, b"6,42,9,-;usb 1-1: new device\n"], 41),
        ([KILL, KILL.replace(b"41", b"57").replace(b"Out", b"Memory cgroup out")], 57),
        ([BrokenPipeError(), KILL], 41),
        ([b"6,42,9,-;usb 1-1: new device\n"], -1),
        ([], -1),
        ([b"3;Killed process 7"], None),
        ([b"3,x,9,-;Killed process 7"], None),
        ([KILL, OSError()], None),
    ],
)
def test_kills_in_the_log(
    tmp_path: Path,
    records: list[bytes | OSError],
    number: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nothing counts, the newest kill that the kernel's log tells of is known."""
    log = tmp_path / "kmsg"
    log.touch()
    left: list[bytes | OSError] = [*records, BlockingIOError()]

    def read(fd: int, size: int) -> bytes:
        one = left.pop(0)
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(os, "read", read)
    nowhere = str(tmp_path / "none")
    assert oom_kills(nowhere, nowhere, str(log)) == number
