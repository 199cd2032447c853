# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many compiles at once."""

from __future__ import annotations

import pytest

from tools.rig.builds import jobs

GIB = 1 << 30


@pytest.mark.parametrize(
    ("asked", "available", "cores", "count", "why"),
    [
        (7, 1 * GIB, 2, 7, "MAX_JOBS says so"),
        (None, None, 64, 1, "the memory of this machine is unknown"),
        (None, 23 * GIB, 16, 5, "23 GiB of memory at 4 GiB a compile"),
        (None, 3 * GIB, 16, 1, "3 GiB of memory at 4 GiB a compile"),
        (None, 0, 16, 1, "0 GiB of memory at 4 GiB a compile"),
        (None, 64 * GIB, 16, 16, "16 cores"),
        (None, 512 * GIB, 16, 16, "16 cores"),
        (None, 1 * GIB, 1, 1, "1 cores"),
    ],
)
def test_table(
    asked: int | None, available: int | None, cores: int, count: int, why: str
) -> None:
    """What the user wants, else what memory allows, at most the cores."""
    assert jobs.plan(asked, "MAX_JOBS", available, cores, 4) == jobs.Jobs(count, why)
