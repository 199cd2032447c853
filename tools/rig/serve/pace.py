# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How long a server's processes were kept from working, by the machine and not by them.

A server that waits for a processor, or for pages that were swapped out, stands as still
as one that hangs. The kernel counts both: ``schedstat`` holds the nanoseconds that a
thread could have run and did not (``Documentation/scheduler/sched-stats.rst``), and
``stat`` the page faults that had to read a disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FAULT_S = 0.01
"""Seconds that a page fault may take which reads a disk."""

_MAJOR_FAULTS = 9
"""Place of that count behind the name in ``/proc/PID/stat``."""


@dataclass(frozen=True)
class Pace:
    """What some processes had waited for at one moment.

    ``queued`` holds nanoseconds by process and thread, ``faults`` a count by process.
    """

    queued: Mapping[tuple[int, int], int]
    faults: Mapping[int, int]


def read(pids: Iterable[int], proc: str = "/proc") -> Pace:
    """Return what processes have waited for so far; what cannot be read is left out."""
    queued: dict[tuple[int, int], int] = {}
    faults: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"{proc}/{pid}/stat", errors="replace") as fh:
                behind = fh.read().rpartition(")")[2].split()
            faults[pid] = int(behind[_MAJOR_FAULTS])
            for name in os.listdir(f"{proc}/{pid}/task"):
                queued.update(_queued(pid, name, proc))
    return Pace(queued, faults)


def lost(before: Pace, after: Pace) -> float:
    """Return the seconds that work may have waited between two moments.

    A request goes from one process to the next, so that their waits add up; in each of
    them the thread counts that waited longest.
    """
    longest: dict[int, int] = {}
    for (pid, thread), now in after.queued.items():
        waited = now - before.queued.get((pid, thread), 0)
        longest[pid] = max(longest.get(pid, 0), waited)
    reads = sum(
        max(0, now - before.faults.get(pid, now)) for pid, now in after.faults.items()
    )
    return sum(longest.values()) / 1e9 + reads * FAULT_S


def _queued(pid: int, thread: str, proc: str) -> dict[tuple[int, int], int]:
    try:
        with open(f"{proc}/{pid}/task/{thread}/schedstat") as fh:
            return {(pid, int(thread)): int(fh.read().split()[1])}
    except (OSError, ValueError, IndexError):
        return {}
