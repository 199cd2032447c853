# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many compiles at once: what memory allows, at most the cores."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1 << 30


@dataclass(frozen=True)
class Jobs:
    """A number of compiles at once, and why it is that one."""

    count: int
    why: str


def plan(
    asked: int | None, origin: str, available: int | None, cores: int, gib_per_job: int
) -> Jobs:
    """Return how many compiles run at once.

    Parameters
    ----------
    asked
        What the user wants, or None.
    origin
        Where that came from, for the message.
    available
        Bytes of memory that compiles may take; None when unknown.
    cores
        Cores that this process may use.
    gib_per_job
        Memory of one compile in GiB (measured, see the profile).
    """
    if asked is not None:
        return Jobs(asked, f"{origin} says so")
    if available is None:
        return Jobs(1, "the memory of this machine is unknown")
    fit = max(1, available // (gib_per_job * _GIB))
    if fit < cores:
        have = available / _GIB
        return Jobs(fit, f"{have:.0f} GiB of memory at {gib_per_job} GiB a compile")
    return Jobs(cores, f"{cores} cores")
