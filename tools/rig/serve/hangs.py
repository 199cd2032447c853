# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How often a server that hangs is restarted: at once, then ever more rarely."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tools.rig.base.errors import RigError
from tools.rig.base.state import StateRoot, write_json
from tools.rig.serve import record as records
from tools.rig.serve import record_file

FIRST_S = 600.0
"""Seconds between the first restart and the second; each later one waits twice as
long."""

MOST_S = 6 * 3600.0
FORGOTTEN_S = 24 * 3600.0
"""Seconds after which a restart no longer counts."""


def due_at(restarts: Sequence[float]) -> float:
    """Return when the next restart may be, in seconds since 1970; 0: at once.

    Parameters
    ----------
    restarts
        When the earlier ones were.
    """
    if not restarts:
        return 0.0
    wait = min(FIRST_S * 2.0 ** (len(restarts) - 1), MOST_S)
    return max(restarts) + wait


def recent(restarts: Sequence[float], now: float) -> list[float]:
    """Return the restarts that count; what lies in the future is a clock's mistake."""
    return [at for at in restarts if now - FORGOTTEN_S < at <= now]


def load(root: StateRoot, name: str) -> list[float]:
    """Return when a server was restarted because it hung; nothing readable is none."""
    with contextlib.suppress(RigError):
        found = record_file.read(_path(root, name))
        if isinstance(found, list):
            return [float(at) for at in found if record_file.fits(at, float)]
    return []


def save(root: StateRoot, name: str, restarts: Sequence[float]) -> None:
    """Write them down.

    Raises
    ------
    StepFailed
        When the disk does not take it.
    """
    write_json(_path(root, name), [*restarts])


def _path(root: StateRoot, name: str) -> Path:
    return records.path_of(root, name).with_suffix(".hangs")
