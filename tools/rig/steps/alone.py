# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Nobody else builds or switches an environment while we do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError
from tools.rig.builds.place import COPY_IT
from tools.rig.guard.lock import BuildLock
from tools.rig.steps.scene import Scene

DYING_S = 10.0
"""Seconds that the guard waits for what a killed build left, longer than its grace."""


@dataclass(frozen=True)
class Alone:
    """The lock is held. ``patience`` is how long what a dead holder left may take."""

    patience: float


@contextlib.contextmanager
def alone(console: Console, found: Scene) -> Iterator[Alone]:
    """Hold the lock of a scene's environment.

    Raises
    ------
    InUseError
        When someone else holds it (exit 4).
    """
    found.root.make(found.root.venvs)
    command = " ".join(sys.argv)
    with BuildLock(found.environment, found.checkout, command, console=console) as lock:
        # compilers of a build that was killed take some seconds to go
        yield Alone(DYING_S if lock.taken_over else 0.0)


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
            hint=COPY_IT,
        )
