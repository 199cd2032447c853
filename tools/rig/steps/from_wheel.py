# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A downloaded wheel takes the road of a build: beside, proved, switched, recorded."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError, unwritable
from tools.rig.builds import uv
from tools.rig.builds.generations import Generation
from tools.rig.steps import (
    build_report,
    dot_venv,
    generation,
    plan,
    pruning,
    switching,
)
from tools.rig.steps.alone import Alone, alone
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.install_wheel import InstallResult
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene
from tools.rig.steps.switching import Wish


def install(
    console: Console,
    found: Scene,
    wheel: Path,
    *,
    when_free: bool = False,
    use: Tools | None = None,
) -> InstallResult:
    """Make a generation of a wheel, verify, switch on and record.

    Raises
    ------
    InUseError
        When someone holds the lock; or uses what is in force, and the new generation
        is kept beside it (exit 4).
    RigError
        When the wheel does not fit, lacks the card's code, or a step fails.
    """
    use = use or Tools()
    wish = Wish(when_free, bool(found.settings.force))
    with alone(console, found) as here, Run(console, found.root) as run:
        return _steps(run, found, wheel, use, wish, here)


def _steps(
    run: Run, found: Scene, wheel: Path, use: Tools, wish: Wish, here: Alone
) -> InstallResult:
    console, root = run.console, found.root
    run.record.update(
        profile=found.profile.name,
        environment=str(found.environment),
        checkout=str(found.checkout),
        wheel=str(wheel),
    )
    with run.step("environment"):
        switching.settle(console, found)
        made = use.make_environment(found.placing, console, env=found.env)
        # before a toolkit is brought for it
        use.need_fit(wheel, found.placing.bench / "bin/python", found.env)
    with run.step("toolchain"):
        chosen = use.plan_pair(found.settings, found.profile, root, found.env)
        pair = use.act_pair(
            console, chosen, found.settings, found.profile, root, found.env
        )
    env = uv.environment(found.env, root, offline=bool(found.settings.offline))
    notes = build_report.place_notes(found.placing, made)
    notes += build_report.chain_notes(chosen, pair, root.toolkits)
    same = _same(run, found, wheel, use, pair.toolkit.cuobjdump, made.python_version)
    if same is not None:
        new, result = same
    else:
        new, result = _install(run, found, wheel, use, env, pair.toolkit.cuobjdump)
    run.record.update(generation=new.id)
    if new.active:
        run.done(
            unchanged=new.id,
            version=result.version,
            notes=notes,
            verify=result.after.to_json(),
        )
        console.mark("ok", f"nothing changed: {new.id} stays in force")
        console.say(f"  environment  {found.environment}")
        dot_venv.follow(console, found, use.make_link)
        dot_venv.tell(console, found)
        return result
    if same is not None:
        console.say(f"  {new.id} is just the same, and is taken")
    try:
        with run.step("switch"):
            _, over = switching.switch_on(
                console,
                found,
                new,
                wish,
                head="",
                patience=here.patience,
                guard=use.guard,
            )
    except InUseError:
        pruning.prune(console, found, use.look, new.id)
        raise
    dot_venv.follow(console, found, use.make_link)
    notes += [f"ONECAT_FORCE=1 over PID {line}" for line in over]
    run.done(version=result.version, notes=notes, verify=result.after.to_json())
    pruning.prune(console, found, use.look)
    console.mark("ok", f"installed {result.project} {result.version}")
    console.say(f"  environment  {found.environment}")
    for note in notes:
        console.say(f"  work-round   {note}")
    console.say(f"  record       {run.record.file}")
    dot_venv.tell(console, found)
    return result


def _same(
    run: Run, found: Scene, wheel: Path, use: Tools, cuobjdump: Path, python: str
) -> tuple[Generation, InstallResult] | None:
    """Return the generation that holds the wheel already, if it proves itself again."""
    one = generation.known(found, wheel, "wheel", "", "", use.inspect, python)
    if one is None:
        return None
    with run.step("verify the environment that has this wheel"):
        after = use.verify(
            run.console,
            python=one.python,
            profile=found.profile,
            cuobjdump=cuobjdump,
            checkout=None,
        )
    if not after.ok:
        # somebody has changed it by hand
        run.console.mark("warn", f"{one.id} is not what it was: it is installed anew")
        return None
    project = found.profile.project
    result = InstallResult(str(wheel), project, one.version, None, after, one.id)
    return one, result


def _install(
    run: Run,
    found: Scene,
    wheel: Path,
    use: Tools,
    env: Mapping[str, str],
    cuobjdump: Path,
) -> tuple[Generation, InstallResult]:
    """Make a generation of the wheel; nobody sees it yet."""
    console, root = run.console, found.root
    with generation.new(found, run.record.id, use, env) as new:
        scratch = root.make(root.make(root.artifacts) / run.record.id)
        result: InstallResult = use.install_wheel(
            console,
            wheel,
            python=new.python,
            profile=found.profile,
            cuobjdump=cuobjdump,
            uv=uv.program(env),
            scratch=scratch,
            log=run.record.log,
            env=env,
            torch_backend=plan.torch_backend(found),
        )
        new = use.finish(
            replace(
                new,
                mode="wheel",
                wheel=str(_kept(wheel, scratch)),
                version=result.version,
                checkout=str(found.checkout),
                verified=True,
            )
        )
    return new, result


def _kept(wheel: Path, folder: Path) -> Path:
    """Keep the wheel beside those that were built here: a download may be cleared."""
    try:
        return Path(shutil.copy2(wheel, folder / wheel.name))
    except OSError as exc:
        raise unwritable(folder / wheel.name, exc) from exc
