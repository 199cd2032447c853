# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a full disk lacks: bytes or inodes, for which the system has the same words."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

FEW = 256
"""Free inodes below which a disk counts as out of them: what was being written is gone
by the time one looks, and gave some back."""

NO_INODES = "no inodes are left: its disk holds as many files as it can"


_SOME_BYTES = 1 << 20


def lacks_inodes(path: Path, few: int = FEW) -> bool:
    """Say whether the disk of a path has bytes left, and no inodes for new files.

    Parameters
    ----------
    path
        It need not exist.
    few
        Free inodes below which they count as none.
    """
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        found = os.statvfs(there)
    except OSError:
        return False
    # file systems that make inodes as they are needed say 0 of 0
    none = bool(found.f_files) and found.f_favail < few
    return none and found.f_bavail * found.f_frsize >= _SOME_BYTES


def look(path: Path, few: int = FEW) -> str:
    """Return the command that shows what the disk of a path lacks."""
    which = "-i" if lacks_inodes(path, few) else "-h"
    return f"df {which} {shlex.quote(os.fspath(path))}"
