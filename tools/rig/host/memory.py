# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How much memory and how many cores this process may use: the machine's or less.

Both cgroup versions are followed from the process's own group up to the root, since
every group on the way may be the one that limits (cgroups(7), cgroup-v2 and cgroup-v1
memory in the kernel's documentation).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import regex as re

_NO_LIMIT = 1 << 60
"""cgroup v1 has no word for "unlimited": it shows the largest page-aligned number."""


@dataclass(frozen=True)
class Memory:
    """Bytes of memory.

    ``total`` and ``available`` are the machine's (0 when unknown). ``limit`` is the
    lowest limit of the cgroups above this process, None without one; ``limited_by``
    names the file. ``usable`` is what a build may still take: never more than the
    machine has free, nor than is left below the limit.
    """

    total: int
    available: int
    limit: int | None
    limited_by: str
    usable: int


@dataclass(frozen=True)
class Cores:
    """Processors: in this process's affinity mask, and what the cgroup quota allows."""

    affinity: int
    quota: float | None
    usable: int


@dataclass(frozen=True)
class _Group:
    """One cgroup folder and which version's file names it uses."""

    folder: Path
    version: int


def read(proc: Path = Path("/proc")) -> Memory:
    """Return the memory that this process may use.

    Parameters
    ----------
    proc
        A proc file system; ``self/mountinfo`` in it says where cgroups are mounted.
    """
    info = meminfo(proc)
    total, available = info.get("MemTotal", 0), info.get("MemAvailable", 0)
    rooms = [available] if available else []
    limit, limited_by = None, ""
    for group in _groups(proc, "memory"):
        found = _memory_limit(group)
        if found is None:
            continue
        value, left, file = found
        rooms.append(max(left, 0))
        if limit is None or value < limit:
            limit, limited_by = value, str(file)
    if limit is not None and total and limit >= total:
        limit, limited_by = None, ""
    return Memory(total, available, limit, limited_by, min(rooms, default=0))


def meminfo(proc: Path = Path("/proc")) -> dict[str, int]:
    """Return ``/proc/meminfo`` in bytes; empty when it cannot be read."""
    found = {}
    with contextlib.suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            key, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdigit():
                found[key] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return found


def cores(
    proc: Path = Path("/proc"), affinity: Callable[[], int] | None = None
) -> Cores:
    """Return how many processors this process may use.

    Parameters
    ----------
    proc
        A proc file system.
    affinity
        Counts the processors of the affinity mask; the kernel's answer when None.

    Notes
    -----
    A quota of one and a half processors counts as one, and never as none.
    """
    count = affinity() if affinity else len(os.sched_getaffinity(0))
    quotas = [q for g in _groups(proc, "cpu") if (q := _quota(g)) is not None]
    quota = min(quotas) if quotas else None
    usable = count if quota is None else min(count, max(1, int(quota)))
    return Cores(count, quota, max(1, usable))


def _groups(proc: Path, controller: str) -> Iterator[_Group]:
    """Yield this process's groups for a controller, from its own up to the mount."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
        mounts = (proc / "self/mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        version = 2 if not controllers else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        for root, point in _cgroup_mounts(mounts, version, controller):
            yield from (
                _Group(folder, version) for folder in _upward(path, root, point)
            )


def _cgroup_mounts(
    mounts: list[str], version: int, controller: str
) -> Iterator[tuple[str, Path]]:
    for line in mounts:
        left, sep, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not sep or len(fields) < 5 or len(kind) < 3:
            continue
        wanted = "cgroup2" if version == 2 else "cgroup"
        if kind[0] != wanted:
            continue
        if version == 1 and controller not in kind[2].split(","):
            continue
        yield _unescaped(fields[3]), Path(_unescaped(fields[4]))


def _upward(path: str, root: str, point: Path) -> Iterator[Path]:
    """Yield existing folders from the group `path` up to its mount `point`.

    `root` is the group that the mount shows: in a container without a cgroup namespace
    the path names groups that lie outside what is mounted.
    """
    group, top = PurePosixPath(path), PurePosixPath(root)
    relative = group.relative_to(top) if group.is_relative_to(top) else None
    parts = relative.parts if relative is not None else ()
    parts = () if ".." in parts else tuple(p for p in parts if p != "/")
    for depth in range(len(parts), -1, -1):
        folder = point.joinpath(*parts[:depth])
        if folder.is_dir():
            yield folder


def _memory_limit(group: _Group) -> tuple[int, int, Path] | None:
    """Return a group's limit, what is left below it, and the file that says so."""
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[group.version]
    file = group.folder / names[0]
    limit = _int_in(file)
    if limit is None or limit >= _NO_LIMIT:
        return None
    used = _int_in(group.folder / names[1]) or 0
    # clean page cache counts as used and is given back on demand
    cache = _stat_value(group.folder / "memory.stat", names[2])
    return limit, limit - max(0, used - cache), file


def _quota(group: _Group) -> float | None:
    if group.version == 2:
        words = _words(group.folder / "cpu.max")
    else:
        words = [
            *_words(group.folder / "cpu.cfs_quota_us"),
            *_words(group.folder / "cpu.cfs_period_us"),
        ]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    quota, period = int(words[0]), int(words[1])
    return quota / period if quota and period else None


def _int_in(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdigit() else None


def _stat_value(file: Path, key: str) -> int:
    words = _words(file)
    pairs = dict(zip(words[::2], words[1::2]))
    value = pairs.get(key, "0")
    return int(value) if value.isdigit() else 0


def _words(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace").split()
    return []


def _unescaped(text: str) -> str:
    r"""Undo mountinfo's octal escapes (a blank is written as ``\040``)."""
    plain: str = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
    return plain
