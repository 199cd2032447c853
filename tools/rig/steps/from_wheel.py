# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A downloaded wheel takes the road of a build: lock, scan, proof, install, record."""

from __future__ import annotations

from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.builds import uv
from tools.rig.steps import build_report, plan
from tools.rig.steps.alone import alone
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.install_wheel import InstallResult
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene


def install(
    console: Console, found: Scene, wheel: Path, *, use: Tools | None = None
) -> InstallResult:
    """Install a wheel into the environment of a scene, verify and record.

    Raises
    ------
    InUseError
        When someone uses the environment or holds its lock (exit 4).
    RigError
        When the wheel does not fit, lacks the card's code, or a step fails.
    """
    use = use or Tools()
    with alone(console, found, use.guard) as over, Run(console, found.root) as run:
        return _steps(run, found, wheel, use, over)


def _steps(
    run: Run, found: Scene, wheel: Path, use: Tools, over: list[str]
) -> InstallResult:
    console, root = run.console, found.root
    run.record.update(
        profile=found.profile.name,
        environment=str(found.environment),
        wheel=str(wheel),
        notes=over,
    )
    with run.step("environment"):
        made = use.make_environment(found.placing, console, env=found.env)
    with run.step("toolchain"):
        chosen = use.plan_pair(found.settings, found.profile, root, found.env)
        pair = use.act_pair(
            console, chosen, found.settings, found.profile, root, found.env
        )
    env = uv.environment(found.env, root, offline=bool(found.settings.offline))
    result: InstallResult = use.install_wheel(
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
    notes = [*over, *build_report.place_notes(found.placing, made)]
    notes += build_report.chain_notes(chosen, pair, root.toolkits)
    run.done(version=result.version, notes=notes, verify=result.after.to_json())
    console.mark("ok", f"installed {result.project} {result.version}")
    console.say(f"  environment  {found.environment}")
    for note in notes:
        console.say(f"  work-round   {note}")
    console.say(f"  record       {run.record.file}")
    return result
