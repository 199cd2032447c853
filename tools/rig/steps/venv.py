# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``venv-local``: an environment on a fast local disk, and ``.venv`` to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.config import Settings
from tools.rig.base.console import Console
from tools.rig.builds.candidates import NEED_BYTES, speed
from tools.rig.builds.place import Environment, PlaceFacts, PlacePlan, plan
from tools.rig.builds.settle import act
from tools.rig.builds.survey import facts
from tools.rig.guard import gate
from tools.rig.steps.alone import alone
from tools.rig.steps.scene import Scene

__all__ = [
    "Environment",
    "PlaceFacts",
    "PlacePlan",
    "VenvResult",
    "act",
    "facts",
    "plan",
    "guarded",
    "venv_local",
]


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


def venv_local(
    settings: Settings,
    checkout: Path,
    console: Console,
    *,
    need_bytes: int = NEED_BYTES,
    python: str = "3.12",
    need_headers: bool = False,
    env: Mapping[str, str] | None = None,
) -> VenvResult:
    """Choose a disk for the environment of `checkout`, and make it there.

    The caller holds the lock of the environment.

    Parameters
    ----------
    settings
        ``local_root``, ``python`` and ``offline`` are used.
    checkout
        The folder that will be built.
    console
        Gets the lines for people.
    need_bytes
        Bytes that must be free on the disk.
    python
        The profile's Python.
    need_headers
        Whether the target is compiled with Python.h.
    env
        Our environment when None.

    Raises
    ------
    InUseError
        When somebody uses a broken environment, which would be moved.
    CannotError
        When no disk or no Python of this machine will do.
    StepFailed
        When a disk hangs or is full, or uv fails.
    """
    with console.step("environment on a local disk"):
        found = facts(
            settings, checkout, python=python, env=env, need_headers=need_headers
        )
        its = plan(found, need_bytes)
        console.say(f"checkout: {speed(its.facts.checkout_disk)}")
        for verdict in its.verdicts:
            if verdict.reason and not verdict.candidate.chosen:
                console.mark("skip", str(verdict))
        made = act(
            its,
            console,
            env=env,
            before_moving=lambda: gate.guard(
                console, its.environment, its.facts.checkout.real, force=settings.force
            ),
            relink=True,
        )
        console.say(f"environment: {made.path} (Python {made.python_version})")
    return VenvResult(its, made)


def guarded(
    console: Console, found: Scene, *, guard: Callable[..., Any] = gate.guard
) -> VenvResult:
    """Make the environment of a scene and the link to it, under its lock.

    Raises
    ------
    InUseError
        When somebody holds the lock, or uses an environment that had to be moved out of
        the way (exit 4).
    CannotError, StepFailed
        As for :func:`venv_local`.
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
