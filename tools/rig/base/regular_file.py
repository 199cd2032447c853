# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Opens and reads files, and nothing that only goes by the name of one.

A pipe would be waited for, a device may act when it is opened or never end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

MOST = 4 << 20
"""Bytes that a small file has at most."""


def opened(path: Path, look: Callable[[Path], os.stat_result] = os.stat) -> BinaryIO:
    """Open a regular file for reading, and nothing else.

    Raises
    ------
    OSError
        When it is no regular file, or cannot be opened.
    """
    _regular(path, look(path))
    # between the look and the opening it may have become a pipe
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _regular(path, os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, most: int = MOST) -> bytes:
    """Return the content of a small file.

    Raises
    ------
    OSError
        When it is no regular file, has more than `most` bytes, or cannot be opened.
    """
    with opened(path) as fh:
        data = fh.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes", os.fspath(path))
    return data


def _regular(path: Path, seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
