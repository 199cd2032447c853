# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Nobody else builds an environment, and nobody runs from it, while we change it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tools.rig.base import redact
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError
from tools.rig.guard import gate
from tools.rig.guard.lock import BuildLock
from tools.rig.steps.scene import Scene

DYING_S = 10.0
"""Seconds that the guard waits for what a killed build left, longer than its grace."""


@contextlib.contextmanager
def alone(
    console: Console, found: Scene, guard: Callable[..., Any] = gate.guard
) -> Iterator[list[str]]:
    """Hold the lock of a scene's environment, once nobody is seen using it.

    Yields a line for each process over which ``ONECAT_FORCE=1`` goes on.

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
        seen = guard(console, place, checkout, force=force, patience=patience)
        over = gate.process_lines(seen) if force else []
        yield [redact.text(f"ONECAT_FORCE=1 over PID {line}") for line in over]


def need_writable(found: Scene) -> None:
    """Refuse a checkout that the target's build could not write into.

    Raises
    ------
    CannotError
        When it is read-only for us.
    """
    if not found.placing.facts.checkout.writable:
        raise CannotError(
            f"{found.checkout} cannot be written to; the target's build writes into "
            "its checkout",
            usual="It is mounted read-only, or it belongs to somebody else.",
            hint="copy it to a folder of yours and pass that with --source, or mount "
            "it writable",
        )
