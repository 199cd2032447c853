# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What each task does, from typed words to a result: finds the scene, calls the step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, table
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds import place, record
from tools.rig.builds.place import Environment
from tools.rig.steps import scene as scenes
from tools.rig.steps.scene import Scene, find, settings_for


@dataclass(frozen=True)
class Data:
    """A result that is plain data, with the exit code that it means."""

    data: Any
    exit_code: int = 0

    def to_json(self) -> Any:
        """Return the data."""
        return self.data


def doctor(
    console: Console,
    only: Sequence[str],
    list_only: bool,
    compare_with: str,
    **cli: str,
) -> Any:
    """Run the checks, list them, or compare with another host's."""
    from tools.rig.steps import doctor as step

    if list_only:
        rows = [(name, title) for name, title in step.list_checks()]
        for line in table(("CHECK", "WHAT IT LOOKS AT"), rows):
            console.say(line)
        return Data([{"id": name, "title": title} for name, title in rows])
    from tools.rig.builds import target

    settings = settings_for(cli)
    found = target.find(settings)
    report = step.doctor(
        console, settings, found.profile, only=only, checkout=found.path
    )
    if not compare_with:
        return report
    differences = step.compare(report.to_json(), _document(compare_with))
    for difference in differences:
        console.say(str(difference))
    if not differences:
        console.mark("ok", "nothing differs")
    return Data([asdict(d) for d in differences])


def toolkit(console: Console, **cli: str) -> Any:
    """Find or bring a toolkit and compiler."""
    from tools.rig.steps import toolkit as step

    found = _scene(console, cli)
    plan = step.plan(found.settings, found.profile, found.root, found.env)
    return step.act(
        console, plan, found.settings, found.profile, found.root, found.env
    )


def shim(console: Console, **cli: str) -> Any:
    """Probe the pair that is here, and shadow clashing headers."""
    from tools.rig.steps import shim as step
    from tools.rig.steps import toolkit as chain

    found = _scene(console, cli)
    plan = chain.plan(found.settings, found.profile, found.root, found.env)
    if plan.toolkit is None:
        raise CannotError(
            "no toolkit that fits the profile is here yet",
            details=plan.reasons,
            hint="invoke cuda-toolkit",
        )
    env = {**found.env, **chain.pair_env(plan.toolkit.root, plan.compiler, found.env)}
    folder = found.root.make(found.root.shims)
    return _plain(step.shim(console, plan.toolkit, plan.compiler, env, folder))


def git_safe(console: Console, **cli: str) -> Any:
    """Probe git on the checkout, and make a private configuration where needed."""
    from tools.rig.steps import git_safe as step

    found = _scene(console, cli)
    folder = found.root.make(found.root.shims)
    places = [found.checkout, found.deps]
    return _plain(step.git_safe(console, places, found.env, folder, found.mirrors))


def venv(console: Console, **cli: str) -> Any:
    """Choose the place, make the environment and link it."""
    from tools.rig.guard.lock import BuildLock
    from tools.rig.steps import venv as step

    found = _scene(console, cli)
    found.root.make(found.root.venvs)
    for line in found.placing.lines():
        console.say(f"  {line}")
    with BuildLock(found.environment, found.checkout, "venv-local", console=console):
        made: Environment = step.act(found.placing, console)
    return Data(
        {
            "root": str(made.root.path),
            "environment": str(made.path),
            "python": str(made.python),
            "python_version": made.python_version,
            "link": str(made.link) if made.link else None,
            "deps": str(made.deps),
            "notes": list(made.notes),
        }
    )


def plan(console: Console, wheel_only: bool, **cli: str) -> Any:
    """Print what a build would do."""
    from tools.rig.steps import plan as step

    settings = settings_for(cli)
    found = scenes.find(console, settings, lay_out=False)
    made = step.preview(console, found, wheel_only=wheel_only)
    for line in made.lines():
        console.say(line)
    return made


def build(console: Console, wheel_only: bool, **cli: str) -> Any:
    """Build, install, verify and record."""
    from tools.rig.steps import build as step

    return step.build(console, _scene(console, cli), wheel_only=wheel_only)


def in_use(console: Console, **cli: str) -> Any:
    """Say who uses the environment; with people watching, exit 4 says it too."""
    from tools.rig.steps import in_use as step

    found = _scene(console, cli, lay_out=False)
    report = step.in_use(console, found.environment, found.checkout)
    return Data(asdict(report), 0 if report.free else 4)


def verify(console: Console, **cli: str) -> Any:
    """Check an environment that is there."""
    from tools.rig.steps import toolkit as chain
    from tools.rig.steps import verify as step

    found = _scene(console, cli, lay_out=False)
    if not found.python.exists():
        raise CannotError(
            f"there is no environment at {found.environment}", hint="invoke build-sm70"
        )
    pair = chain.plan(found.settings, found.profile, found.root, found.env)
    if pair.toolkit is None:
        raise CannotError("no cuobjdump to check with", hint="invoke cuda-toolkit")
    return step.verify(
        console,
        python=found.python,
        profile=found.profile,
        cuobjdump=pair.toolkit.cuobjdump,
        checkout=found.checkout,
    )


def install_wheel(console: Console, file: str, **cli: str) -> Any:
    """Turn a downloaded wheel into a verified environment."""
    from tools.rig.steps import install_wheel as step

    return step.run(console, _scene(console, cli), Path(file).absolute())


def builds(console: Console, **cli: str) -> Any:
    """List the records of all builds below the remembered state root."""
    from tools.rig.builds import survey

    settings = settings_for(cli)
    before = survey.remembered(os.environ)
    root = settings.local_root or (before[0] if before else None)
    if root is None:
        console.say("no builds yet")
        return Data([])
    found = record.listing(place.StateRoot(root))
    rows = [
        (
            str(r.get("id", "")),
            str(r.get("result", "")),
            str(r.get("profile", "")),
            str(r.get("version", r.get("problem", ""))),
        )
        for r in found
    ]
    for line in table(("BUILD", "RESULT", "PROFILE", "VERSION"), rows):
        console.say(line)
    return Data(found)


def _scene(console: Console, cli: dict[str, str], *, lay_out: bool = True) -> Scene:
    return find(console, settings_for(cli), lay_out=lay_out)


def _plain(result: Any) -> Data:
    return Data(asdict(result))


def _document(file: str) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"cannot read {file}: {exc}", hint="invoke doctor --json > FILE"
        ) from exc


