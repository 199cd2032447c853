# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads a small file, and nothing that only goes by the name of one.

A pipe would be waited for, a device may act when it is opened or never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST = 4 << 20
"""Bytes that a small file has at most."""


def read(path: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file.

    Raises
    ------
    OSError
        When it is none, has more than `most` bytes, or cannot be opened.
    """
    _regular(path, os.stat(path))
    # between the look and the opening it may have become a pipe
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb") as fh:
        _regular(path, os.fstat(fd))
        data = fh.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes", os.fspath(path))
    return data


def _regular(path: Path, seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
