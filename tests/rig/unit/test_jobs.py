# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many compiles at once."""

from __future__ import annotations

import pytest

from tools.rig.builds import jobs

GIB = 1 << 30


@pytest.mark.parametrize(
    ("available", "cores", "count"),
    [
        (23 * GIB, 16, 5),
        (3 * GIB, 16, 1),
        (0, 16, 1),
        (64 * GIB, 16, 16),
        (512 * GIB, 16, 16),
        (1 * GIB, 1, 1),
    ],
)
def test_table(available: int, cores: int, count: int) -> None:
    """What memory allows, at most the cores, and one in any case."""
    assert jobs.fitting(available, cores, 4) == count
