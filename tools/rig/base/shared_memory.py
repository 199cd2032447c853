# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Files in /dev/shm: who maps them, and removing what the dead have left there.

A process that is killed cannot remove its own; they fill memory until the next boot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

SHM = "/dev/shm/"


def mapped(pids: Iterable[int], proc: str = "/proc") -> dict[str, int]:
    """Return the files below /dev/shm that processes map, with their inodes."""
    found: dict[str, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), open(f"{proc}/{pid}/maps", "rb") as fh:
            for line in fh.read().splitlines():
                fields = line.split(None, 5)
                if len(fields) < 6 or not fields[5].startswith(SHM.encode()):
                    continue
                if not fields[5].endswith(b" (deleted)"):
                    found[os.fsdecode(fields[5])] = int(fields[4])
    return found


def remove(files: dict[str, int], proc: str = "/proc") -> list[str]:
    """Delete those of `files` that are still the same, ours and mapped by nobody."""
    here = {p: i for p, i in files.items() if _is_ours(p, i)}
    if not here:
        return []
    everybody = [int(name) for name in os.listdir(proc) if name.isdigit()]
    used = mapped(everybody, proc)
    removed = []
    for path in sorted(set(here) - set(used)):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed.append(path)
    return removed


def _is_ours(path: str, inode: int) -> bool:
    try:
        facts = os.lstat(path)
    except OSError:
        return False
    return facts.st_ino == inode and facts.st_uid == os.getuid()
