# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Nobody else builds an environment, and nobody runs from it, while we change it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tools.rig.base.console import Console
from tools.rig.guard import gate
from tools.rig.guard.lock import BuildLock
from tools.rig.steps.scene import Scene

DYING_S = 10.0
"""Seconds that the guard waits for what a killed build left, longer than its grace."""


@contextlib.contextmanager
def alone(
    console: Console, found: Scene, guard: Callable[..., Any] = gate.guard
) -> Iterator[None]:
    """Hold the lock of a scene's environment, once nobody is seen using it.

    Raises
    ------
    InUseError
        When someone uses the environment or holds its lock (exit 4).
    """
    found.root.make(found.root.venvs)
    place, checkout, command = found.environment, found.checkout, " ".join(sys.argv)
    with BuildLock(place, checkout, command, console=console) as lock:
        # compilers of a build that was killed take some seconds to go
        patience = DYING_S if lock.taken_over else 0.0
        force = found.settings.force
        guard(console, place, checkout, force=force, patience=patience)
        yield
