# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Files in /dev/shm: who maps them, and removing what the dead have left there.

A process that is killed cannot remove its own; they fill memory until the next boot.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

SHM = "/dev/shm"


def mapped(
    pids: Iterable[int], proc: str = "/proc", folder: str = SHM
) -> dict[str, int]:
    """Return the files below /dev/shm that processes map, with their inodes.

    By inode, since the C library makes a semaphore under another name than the one that
    it keeps: the map then says that the file was deleted.
    """
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"{proc}/{pid}/maps", "rb") as fh:
            for line in fh.read().splitlines():
                fields = line.split(None, 5)
                if len(fields) == 6 and fields[5].startswith(f"{folder}/".encode()):
                    inodes.add(int(fields[4]))
    found = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries if inodes else ():
            if entry.inode() in inodes:
                found[entry.path] = entry.inode()
    return found


def remove(files: dict[str, int], proc: str = "/proc", folder: str = SHM) -> list[str]:
    """Delete those of `files` that are still the same, ours and mapped by nobody.

    Their names come out of a record: what does not lie in the folder itself is none.
    """
    here = {
        path: inode
        for path, inode in files.items()
        if _lies_in(path, folder) and _is_ours(path, inode)
    }
    if not here:
        return []
    everybody = [int(name) for name in os.listdir(proc) if name.isdigit()]
    used = mapped(everybody, proc, folder)
    removed = []
    for path in sorted(set(here) - set(used)):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed.append(path)
    return removed


def _lies_in(path: str, folder: str) -> bool:
    head, _, name = path.rpartition("/")
    return head == folder and name not in ("", ".", "..")


def _is_ours(path: str, inode: int) -> bool:
    try:
        facts = os.lstat(path)
    except OSError:
        return False
    ours = facts.st_ino == inode and facts.st_uid == os.getuid()
    return ours and stat.S_ISREG(facts.st_mode)
