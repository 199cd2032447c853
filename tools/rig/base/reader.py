# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether anybody still reads what a program prints that goes on for long."""

from __future__ import annotations

import select
import time
from typing import TextIO


def stays(stream: TextIO, seconds: float) -> bool:
    """Wait, and say whether the stream still has a reader.

    A pipe or a terminal that was closed at the other end is noticed at once, also
    while there is nothing to write.
    """
    watch = select.poll()
    try:
        watch.register(stream.fileno(), 0)
    except (OSError, ValueError):
        # no file behind it: nobody can leave it
        time.sleep(seconds)
        return True
    return not watch.poll(seconds * 1000)
