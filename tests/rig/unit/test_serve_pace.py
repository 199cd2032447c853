# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How long processes waited for the machine, from what the kernel counts."""

from __future__ import annotations

from pathlib import Path

from tools.rig.serve import pace
from tools.rig.serve.pace import Pace


def process(proc: Path, pid: int, faults: int, threads: dict[int, str]) -> None:
    """Write what the kernel says of a process."""
    here = proc / str(pid)
    here.mkdir(parents=True, exist_ok=True)
    (here / "stat").write_text(f"{pid} (a) b) S 1 2 3 4 5 6 7 8 {faults} 0 0\n")
    for thread, text in threads.items():
        (here / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
        (here / "task" / str(thread) / "schedstat").write_text(text)


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    """Threads and faults are read, and what is gone or odd is left out."""
    process(tmp_path, 7, 3, {7: "10 20 1\n", 8: "1\n"})
    process(tmp_path, 9, 0, {9: "5 6 7\n"})
    found = pace.read([7, 9, 11], str(tmp_path))
    assert found == Pace({(7, 7): 20, (9, 9): 6}, {7: 3, 9: 0})


def test_waits_of_processes_add_up() -> None:
    """The longest wait of each process counts, and each read of a disk."""
    before = Pace({(1, 1): 10**9, (2, 2): 0}, {1: 5})
    after = Pace(
        {(1, 1): 2 * 10**9, (1, 3): 3 * 10**9, (2, 2): 10**9}, {1: 105, 2: 1000}
    )
    assert pace.lost(before, after) == 3 + 1 + 100 * pace.FAULT_S
    assert pace.lost(before, before) == 0
