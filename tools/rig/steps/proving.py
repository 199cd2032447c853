# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``verify`` from a scene: which environment is meant, and with what it is proved."""

from __future__ import annotations

import os
from pathlib import Path

from tools.rig.base import access
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.steps import linked, toolkit, verify
from tools.rig.steps.scene import Scene


def prove(console: Console, found: Scene) -> VerifyReport:
    """Check the environment of a scene, or the one that ``.venv`` leads to instead.

    Raises
    ------
    CannotError
        When there is none, or no toolkit to check it with.
    """
    environment, profile = found.environment, found.profile
    checkout: Path | None = found.checkout
    roots = [found.root]
    other = linked.to_prove(found)
    if other is not None:
        environment, profile, checkout = other
        console.say(f"looking at {environment}, where .venv points")
        # what it was built with lies in its own root
        roots.insert(0, StateRoot(environment.parent.parent))
    python = environment / "bin" / "python"
    if not os.path.exists(python):
        for place in (python, found.placing.link / "bin" / "python"):
            access.need_open(place, "sudo -u {owner} invoke verify")
        kept = generations.lost(found.root, environment.name)
        raise CannotError(
            f"there is no environment at {environment}",
            usual=f"A build of it is kept: {kept.id}." if kept else "",
            hint=f"invoke activate --build {kept.id}" if kept else "invoke build-sm70",
        )
    plans = (toolkit.plan(found.settings, profile, root, found.env) for root in roots)
    kit = next((pair.toolkit for pair in plans if pair.toolkit), None)
    if kit is None:
        raise CannotError("no cuobjdump to check with", hint="invoke cuda-toolkit")
    report = verify.verify(
        console,
        python=python,
        profile=profile,
        cuobjdump=kit.cuobjdump,
        checkout=checkout,
    )
    if not report.ok:
        console.say(f"hint: {verify.failure(report).hint}")
    return report
