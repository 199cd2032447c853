# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Ctrl-C, pressed while a test waits for something."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def ctrl_c(after: float = 0.5) -> Iterator[None]:
    """Send ourselves SIGINT, and expect that what is done meanwhile ends with it.

    When that ends otherwise the signal is taken back: it would end the test run.

    Parameters
    ----------
    after
        Seconds.
    """
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
