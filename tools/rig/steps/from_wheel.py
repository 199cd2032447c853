# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A downloaded wheel takes the road of a build: lock, scan, proof, install, record."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.builds import uv
from tools.rig.builds.settle import act as make_environment
from tools.rig.guard.gate import guard
from tools.rig.guard.lock import BuildLock
from tools.rig.steps import build_report, plan, toolkit
from tools.rig.steps.install_wheel import InstallResult, install_wheel
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene


def install(console: Console, found: Scene, wheel: Path) -> InstallResult:
    """Install a wheel into the environment of a scene, verify and record.

    Raises
    ------
    InUseError
        When someone uses the environment or holds its lock (exit 4).
    RigError
        When the wheel does not fit, lacks the card's code, or a step fails.
    """
    root = found.root
    root.make(root.venvs)
    command = " ".join(sys.argv)
    with BuildLock(found.environment, found.checkout, command, console=console):
        guard(console, found.environment, found.checkout, force=found.settings.force)
        with Run(console, root) as run:
            return _steps(run, found, wheel)


def _steps(run: Run, found: Scene, wheel: Path) -> InstallResult:
    console, root = run.console, found.root
    run.record.update(
        profile=found.profile.name,
        environment=str(found.environment),
        wheel=str(wheel),
    )
    with run.step("environment"):
        made = make_environment(found.placing, console, env=found.env)
    with run.step("toolchain"):
        chosen = toolkit.plan(found.settings, found.profile, root, found.env)
        pair = toolkit.act(
            console, chosen, found.settings, found.profile, root, found.env
        )
    env = uv.environment(found.env, root, offline=bool(found.settings.offline))
    result = install_wheel(
        console,
        wheel,
        python=found.python,
        profile=found.profile,
        cuobjdump=pair.toolkit.cuobjdump,
        uv=uv.program(env),
        scratch=root.make(root.artifacts / run.record.id),
        log=run.record.log,
        env=env,
        torch_backend=plan.torch_backend(found),
    )
    notes = build_report.place_notes(found.placing, made)
    notes += build_report.chain_notes(chosen, pair, root.toolkits)
    run.done(version=result.version, notes=notes, verify=result.after.to_json())
    console.mark("ok", f"installed {result.project} {result.version}")
    console.say(f"  environment  {found.environment}")
    for note in notes:
        console.say(f"  work-round   {note}")
    console.say(f"  record       {run.record.file}")
    return result
