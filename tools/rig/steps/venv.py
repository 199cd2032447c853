# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``venv-local``: an environment on a fast local disk, and ``.venv`` to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.rig.base.console import Console
from tools.rig.builds.candidates import speed
from tools.rig.builds.place import Environment, PlacePlan
from tools.rig.builds.settle import act
from tools.rig.guard import gate
from tools.rig.steps.alone import alone
from tools.rig.steps.scene import Scene


@dataclass(frozen=True)
class VenvResult:
    """What the step found, decided and made."""

    plan: PlacePlan
    environment: Environment

    def to_json(self) -> dict[str, Any]:
        """Return the content of the step's JSON document."""
        made, its = self.environment, self.plan
        return {
            "root": str(made.root.path),
            "root_from": its.why,
            "environment": str(made.path),
            "python": str(made.python),
            "python_version": made.python_version,
            "link": str(made.link) if made.link else None,
            "fetchcontent_base_dir": str(made.deps),
            "was": its.existing,
            "checkout": str(its.facts.checkout.real),
            "checkout_disk": speed(its.facts.checkout_disk),
            "places": [
                {
                    "root": str(verdict.candidate.root),
                    "from": verdict.candidate.why,
                    "mount": str(verdict.candidate.disk.mount),
                    "refused": verdict.reason or None,
                    "speed": speed(verdict.candidate.disk),
                }
                for verdict in its.verdicts
            ],
            "notes": list(made.notes),
        }


def guarded(
    console: Console, found: Scene, *, guard: Callable[..., Any] = gate.guard
) -> VenvResult:
    """Make the environment of a scene and the link to it, under its lock.

    Raises
    ------
    InUseError
        When somebody holds the lock, or uses an environment that had to be moved out of
        the way (exit 4).
    CannotError
        When no Python of this machine will do.
    StepFailed
        When a disk hangs or is full, or uv fails.
    """
    place, checkout = found.environment, found.checkout
    with alone(console, found) as here:
        force = found.settings.force
        made = act(
            found.placing,
            console,
            env=found.env,
            # one that serves is left as it is, whoever uses it
            before_moving=lambda: guard(
                console, place, checkout, force=force, patience=here.patience
            ),
            relink=True,
        )
    return VenvResult(found.placing, made)
