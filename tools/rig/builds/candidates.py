# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a place will do for the environment, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.console import size
from tools.rig.base.errors import quoted
from tools.rig.host import storage
from tools.rig.host.look import Disk

GIB = 1 << 30

NO_INODES = "no inodes"
CLOSED = "you may not write there"
"""Reasons, or their beginnings, that a command shows more of."""

FILES = 60_000
"""Files of an environment with torch, uv's cache of it not counted."""

NEED_BYTES = 12 * GIB
"""Bytes for the fork: environment 6.9 GB, sources 0.8, caches, wheels, and a margin."""

NEED_AGAIN_BYTES = 2 * GIB
"""Bytes for a further build where the environment is already there."""

NEED_INODES = 2 * FILES
"""The environment's files once more in uv's cache, where they cannot be linked."""

SLOW_OPS = 200.0
"""Operations a second under which a disk is slow. Local disks do 5,000 and more, a NAS
with 60 ms round trips about 10."""

SLOW_MS = 5.0
"""Median milliseconds for one new file above which a disk is slow."""


@dataclass(frozen=True)
class Candidate:
    """A place for the state root and what is known of it.

    ``why`` says where it comes from. ``chosen`` is true when the user named it, which
    also allows a folder of somebody else's. ``venv`` is the state of this checkout's
    environment there: ``absent``, ``ready`` or ``broken``; ``version`` its Python.
    ``setting`` says where the user names it now, for this run: nothing replaces it.
    """

    root: Path
    why: str
    disk: Disk
    chosen: bool = False
    venv: str = "absent"
    version: str = ""
    setting: str = ""


@dataclass(frozen=True)
class Verdict:
    """One candidate and why it is not taken; an empty reason means that it will do."""

    candidate: Candidate
    reason: str

    def __str__(self) -> str:
        place = f"{self.candidate.root} ({self.candidate.why})"
        return f"{place}: {self.reason or speed(self.candidate.disk)}"


def judge(candidate: Candidate, uid: int, need_bytes: int) -> str:
    """Return why a place will not do, or nothing."""
    disk = candidate.disk
    kind = storage.kind(disk.mount.fs)
    need = need_bytes if candidate.venv == "absent" else NEED_AGAIN_BYTES
    need = min(need, need_bytes)
    files = NEED_INODES if need_bytes and candidate.venv == "absent" else 0
    stranger = disk.exists and not candidate.chosen and disk.owner != uid
    checks = (
        (disk.hung, disk.problem),
        (
            kind == "network",
            f"{disk.mount.fs} from {disk.mount.source} is a network file system",
        ),
        (
            kind == "memory",
            f"{disk.mount.fs} lies in memory and is gone after a restart",
        ),
        (disk.mount.read_only, f"{disk.mount.point} is mounted read-only"),
        (disk.mount.no_exec, f"{disk.mount.point} is mounted noexec"),
        (bool(disk.problem), f"it cannot be used: {disk.problem}"),
        (not disk.writable, CLOSED),
        (stranger, f"it belongs to user {disk.owner}, you are {uid}"),
        (disk.links is False, f"{disk.mount.fs} has no symbolic links"),
        (slow(disk), f"too slow: {speed(disk)}"),
        (
            disk.free_bytes < need,
            f"no space: {size(disk.free_bytes)} free, {size(need)} needed",
        ),
        (
            disk.free_inodes < files,
            f"{NO_INODES}: {disk.free_inodes} more files possible, {files} needed",
        ),
    )
    return next((reason for bad, reason in checks if bad), "")


def shows(candidate: Candidate, reason: str) -> str:
    """Return the command that shows what a refused place lacks, or nothing.

    Parameters
    ----------
    reason
        From :func:`judge`.
    """
    disk = candidate.disk
    point = quoted(disk.mount.point)
    if reason.startswith(NO_INODES):
        return f"df -i {point}"
    if not disk.hung and (disk.mount.read_only or disk.mount.no_exec):
        return f"findmnt --target {point}"
    return f"namei -l {quoted(candidate.root)}" if reason == CLOSED else ""


def slow(disk: Disk) -> bool:
    """Return whether the measured rates rule a disk out; not measured is not slow."""
    rates = disk.rates
    return rates is not None and (
        rates.slowest < SLOW_OPS or rates.latency_ms > SLOW_MS
    )


def speed(disk: Disk) -> str:
    """Return the measured rates in words."""
    rates = disk.rates
    if rates is None:
        return f"{disk.mount.fs or 'unknown file system'}, not measured"
    fs = disk.mount.fs or "unknown file system"
    text = (
        f"{fs}, {rates.latency_ms:.2g} ms for a new file; a second: "
        f"{_count(rates.create)} created, {_count(rates.stat)} looked at, "
        f"{_count(rates.rename)} renamed, {_count(rates.unlink)} removed"
    )
    if slow(disk):
        minutes = FILES * (1 / rates.create + 1 / rates.rename) / 60
        text += f"; {FILES} files take about {minutes:.0f} min"
    return text


def _count(rate: float) -> str:
    return f"{rate:,.0f}".replace(",", " ") if rate >= 10 else f"{rate:.1f}"
