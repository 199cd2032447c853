# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Does a piece of work as an ordinary user, for tests that root runs."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

NOBODY = 65534


def needs_root() -> None:
    """Skip where nobody else can be played."""
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")


def as_nobody(work: Callable[[], Any]) -> Any:
    """Return what `work` returns (JSON) in a child that gave up its rights.

    A fork and no new program, since nobody may not read every interpreter. What `work`
    imports late must have been imported before.
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # the child runs on alone and takes no lock that a thread may hold
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            text = json.dumps(work())
            os.write(write_end, text.encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as back:
        answer = back.read()
    os.waitpid(pid, 0)
    assert answer, "the child failed; see its traceback"
    return json.loads(answer)
