# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a model's folder brings along: anybody may have written it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

MOST = 200
"""Characters of a text that a message shows at most."""


def opened(path: Path, look: Callable[[Path], os.stat_result] = os.stat) -> BinaryIO:
    """Open a regular file for reading, and nothing else.

    A pipe would be waited for, and a device may act when it is opened.

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


def escaped(text: str) -> str:
    """Return a text in which a terminal finds nothing to obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def shown(value: object) -> str:
    """Return a value for a message: without control characters, and not long."""
    if not isinstance(value, (str, int, float)):
        # what holds others may be as deep as it likes
        return f"a {type(value).__name__}"
    text = str(value)
    return escaped(text if len(text) <= MOST else text[: MOST - 3] + "...")


def _regular(path: Path, seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
