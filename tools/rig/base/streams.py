# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Standard streams that are closed, full or read by nobody; a task works all the same.

Python has None for a stream that was closed before it started, and hands the free
descriptor to the next file that is opened, so a stray line of some library would land
in that file. Text that could not be written stays in Python's buffer, is tried again at
the very end, and then changes the exit code to 120.
"""

from __future__ import annotations

import contextlib
import os
import sys
from io import FileIO, TextIOWrapper

_STANDARD = 3


def occupy() -> None:
    """Put /dev/null where standard input, output or error is closed.

    ``sys.stdout`` stays None, so that a document that nobody can get is noticed.
    """
    null = os.open(os.devnull, os.O_RDWR)
    while null < _STANDARD:
        os.set_inheritable(null, True)
        null = os.open(os.devnull, os.O_RDWR)
    os.close(null)
    if sys.stderr is None:
        raw = FileIO(2, "w", closefd=False)
        sys.stderr = TextIOWrapper(raw, "utf-8", write_through=True)


def settle() -> None:
    """Give up what the standard streams did not take, before Python tries it again."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                to_nowhere(stream.fileno())
                stream.flush()


def to_nowhere(fd: int) -> None:
    """Let a descriptor lead to /dev/null from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd)
    os.close(null)
