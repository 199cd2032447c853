# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many compiles at once, as far as can be told before any was measured."""

from __future__ import annotations

_GIB = 1 << 30


def fitting(available: int, cores: int, gib_per_job: int) -> int:
    """Return how many compiles fit into memory, at most the cores and at least one.

    Parameters
    ----------
    available
        Bytes of memory that compiles may take.
    cores
        Cores that this process may use.
    gib_per_job
        Memory of one compile in GiB (measured, see the profile).
    """
    return max(1, min(cores, available // (gib_per_job * _GIB)))
