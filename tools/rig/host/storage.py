# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Facts about disks: free space, owners, metadata rates; and mounts, from next door.

What touches a disk hangs when the disk hangs: ask through :mod:`tools.rig.host.look`
unless the disk is known to answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.rig.host.mounts import Mount, kind, mount_of, mount_statistics

__all__ = [
    "UNLIMITED",
    "Mount",
    "Rates",
    "free",
    "kind",
    "measure",
    "mount_of",
    "mount_statistics",
    "nearest_existing",
    "owner",
]

UNLIMITED = sys.maxsize
"""Free inodes of a file system that makes them as it goes (btrfs, some zfs)."""


@dataclass(frozen=True)
class Rates:
    """Metadata operations a second, measured one after the other with small files.

    ``latency_ms`` is the median of one create in milliseconds; ``seconds`` is how long
    the measurement took.
    """

    create: float
    stat: float
    rename: float
    unlink: float
    latency_ms: float
    seconds: float

    @property
    def slowest(self) -> float:
        """The lowest of the four rates."""
        return min(self.create, self.stat, self.rename, self.unlink)


def measure(
    folder: Path,
    budget_s: float = 1.0,
    *,
    clock: Callable[[], float] = time.perf_counter,
    most: int = 1000,
) -> Rates:
    """Measure small-file operations in a new folder below `folder`, and remove it.

    Each round creates a file of one line, looks at it and at a name that is not there
    (as imports do), renames it over another and removes it.

    Parameters
    ----------
    folder
        An existing folder that we may write to.
    budget_s
        Seconds to spend; one round is always made, whatever it takes.
    clock
        Returns seconds.
    most
        Rounds after which a fast disk is known well enough.

    Raises
    ------
    OSError
        When the folder cannot be written to.
    """
    place = folder / f".rig-probe-{secrets.token_hex(4)}"
    place.mkdir()
    spent = {"create": 0.0, "stat": 0.0, "rename": 0.0, "unlink": 0.0}
    creates: list[float] = []
    start = clock()
    try:
        for number in range(most):
            _round(place, number, spent, creates, clock)
            if clock() - start >= budget_s:
                break
    finally:
        shutil.rmtree(place, ignore_errors=True)
    rounds = len(creates)
    rate = {name: rounds / max(took, 1e-9) for name, took in spent.items()}
    return Rates(
        create=rate["create"],
        stat=2 * rate["stat"],
        rename=rate["rename"],
        unlink=rate["unlink"],
        latency_ms=statistics.median(creates) * 1000,
        seconds=clock() - start,
    )


def free(path: Path) -> tuple[int, int]:
    """Return free bytes and free inodes for an ordinary user where `path` lies.

    A file system without a fixed number of inodes has :data:`UNLIMITED` ones.
    """
    got = os.statvfs(path)
    return got.f_bavail * got.f_frsize, got.f_favail if got.f_files else UNLIMITED


def owner(path: Path) -> int:
    """Return the user id that owns `path`; a link's target counts."""
    return path.stat().st_uid


def nearest_existing(path: Path) -> Path:
    """Return `path` or the closest folder above it that exists."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return folder
    return Path("/")


def _round(
    place: Path,
    number: int,
    spent: dict[str, float],
    creates: list[float],
    clock: Callable[[], float],
) -> None:
    file, other = place / f"f{number}", place / f"g{number}"
    t0 = clock()
    with file.open("w") as fh:
        fh.write("x\n")
    t1 = clock()
    file.stat()
    with contextlib.suppress(FileNotFoundError):
        other.stat()
    t2 = clock()
    os.replace(file, other)
    t3 = clock()
    other.unlink()
    t4 = clock()
    creates.append(t1 - t0)
    for name, took in zip(spent, (t1 - t0, t2 - t1, t3 - t2, t4 - t3)):
        spent[name] += took
