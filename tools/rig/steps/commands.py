# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What each task does, from typed words to a result: the scene first, then the step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base import access
from tools.rig.base.console import Console, table
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.base.options import folder
from tools.rig.base.paths import checked_path
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import placed, record, survey, target, wheel_fit
from tools.rig.builds import profile as profiles
from tools.rig.builds.place import PlaceFacts
from tools.rig.steps import linked
from tools.rig.steps import scene as scenes
from tools.rig.steps.scene import Scene, settings_for
from tools.rig.steps.switching import Wish


@dataclass(frozen=True)
class Data:
    """A result that is plain data, with the exit code that it means."""

    data: Any
    exit_code: int = ExitCode.OK

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
        rows = step.list_checks()
        for line in table(("CHECK", "TOPIC", "WHAT IT LOOKS AT"), rows):
            console.say(line)
        return Data([{"id": i, "topic": t, "title": title} for i, t, title in rows])
    other = Path(compare_with) if compare_with else None
    if other is not None:
        # a wrong name is told before minutes of looking, not after
        step.read_report(other)
    console.flags = cli
    settings = settings_for(cli)
    found = target.find_here(settings)
    profile = found.profile
    if found.is_sample and settings.profile:
        # the machine is judged for what was named, though only the sample is here
        profile = profiles.load(settings.profile)
    if profile.project != found.profile.project:
        console.say(
            f"no checkout of {profile.project} is here: judging this machine for "
            f"{profile.name}; build and plan take the bundled sample"
        )
    report = step.doctor(
        console,
        settings,
        profile,
        only=only,
        checkout=found.path or target.HERE,
        absent=found.is_sample,
    )
    if other is None:
        return report
    differences = step.compare_with(console, report, other)
    return Data([asdict(difference) for difference in differences])


def toolkit(console: Console, **cli: str) -> Any:
    """Find or bring a toolkit and compiler."""
    from tools.rig.steps import toolkit as step

    found = scene(console, cli, python=False)
    plan = step.plan(found.settings, found.profile, found.root, found.env)
    return step.act(console, plan, found.settings, found.profile, found.root, found.env)


def shim(console: Console, **cli: str) -> Any:
    """Probe the pair that is here, and shadow clashing headers."""
    from tools.rig.steps import shim as step
    from tools.rig.steps import toolkit as chain

    found = scene(console, cli, python=False)
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

    found = scene(console, cli, python=False)
    folder = found.root.make(found.root.shims)
    places = [found.checkout, found.deps]
    return _plain(step.git_safe(console, places, found.env, folder, found.mirrors))


def venv(console: Console, **cli: str) -> Any:
    """Choose the place, make the environment and link it."""
    from tools.rig.steps import venv as step

    found = scene(console, cli)
    for line in found.placing.lines():
        console.say(f"  {line}")
    return step.guarded(console, found)


def plan(console: Console, wheel_only: bool, **cli: str) -> Any:
    """Print what a build would do."""
    from tools.rig.steps import plan as step

    found = scene(console, cli, lay_out=False)
    made = step.preview(console, found, wheel_only=wheel_only)
    for line in (*found.placing.lines(), *made.lines()):
        console.say(line)
    return made


def build(console: Console, wheel_only: bool, when_free: bool, **cli: str) -> Any:
    """Build, verify, switch on and record."""
    from tools.rig.steps import build as step

    found = scene(console, cli)
    return step.build(console, found, wheel_only=wheel_only, when_free=when_free)


def named(build: str) -> str:
    """Return the build that is asked for.

    Raises
    ------
    UsageError
        When none is named: nothing would mean the previous one.
    """
    if not build:
        raise UsageError("which build?", hint="invoke builds")
    return build


def activate(
    console: Console, name: str, when_free: bool, any_commit: bool, **cli: str
) -> Any:
    """Bring a kept build into force; the previous one when none is named."""
    from tools.rig.steps import activate as step

    here = scene(console, cli, lay_out=False, python=False)
    found = linked.with_builds(here, name)
    if found is not here:
        console.say(f"looking at {found.environment}")
    wish = Wish(when_free, bool(found.settings.force), any_commit)
    return step.activate(console, found, name, wish, prove=step.prover(console, found))


def in_use(console: Console, **cli: str) -> Any:
    """Say who uses the environment; with people watching, exit 4 says it too."""
    from tools.rig.steps import in_use as step

    found = scene(console, cli, lay_out=False, python=False)
    places = {found.environment: found.checkout}
    for other in linked.of_scene(found):
        places.setdefault(other.environment, other.checkout)
    # one that is not there is not worth a word beside one that is, unless it is used:
    # it may have been moved, and a build would also look at its checkout's libraries
    there = {p for p in places if os.path.exists(p)} or {found.environment}
    looked = {
        place: step.in_use(console, place, checkout, only_if_used=place not in there)
        for place, checkout in places.items()
    }
    reports = [its for place, its in looked.items() if place in there or not its.free]
    first, *others = reports
    data = {**asdict(first), "others": [asdict(report) for report in others]}
    free = all(report.free for report in reports)
    return Data(data, ExitCode.OK if free else ExitCode.IN_USE)


def verify(console: Console, **cli: str) -> Any:
    """Check an environment that is there."""
    from tools.rig.steps import proving as step

    found = scene(console, cli, lay_out=False, python=False)
    report = step.prove(console, found)
    return Data(report.to_json(), ExitCode.OK if report.ok else ExitCode.FAILED)


def install_wheel(console: Console, file: str, when_free: bool, **cli: str) -> Any:
    """Turn a downloaded wheel into a verified environment."""
    from tools.rig.steps import from_wheel as step
    from tools.rig.steps import install_wheel as check

    console.flags = cli
    settings = settings_for(cli)
    wheel = wheel_fit.file_of(file)
    profile = check.profile_of(wheel, settings.profile)
    # what cannot be taken here is told before anything is made
    wheel_fit.check_system(wheel_fit.name_of(wheel))
    if settings.source is not None:
        target.need_folder(settings.source)
    found = scenes.at(settings, settings.source or target.HERE, profile)
    return step.install(console, found, wheel, when_free=when_free)


def builds(console: Console, **cli: str) -> Any:
    """List all builds below the state root in force, or those of one checkout."""
    from tools.rig.steps import builds as step

    console.flags = cli
    # what the environment names is what to build, and hides no other's builds here
    if not cli.get("source"):
        return step.builds(console, root_in_force())
    settings = settings_for(cli)
    gone, root = checked_path(settings.source).resolve(), root_in_force(cli)
    if root and not os.path.exists(gone) and place_id(gone) in placed.places(root):
        # it was moved or deleted, and its builds are still there
        return step.builds(console, root, gone)
    source = target.need_folder(settings.source).resolve()
    its = linked.of(source) if settings.local_root is None else None
    own = its is not None and its.environment.name == place_id(source)
    root = StateRoot(its.environment.parent.parent) if its and own else None
    return step.builds(console, root or root_in_force(cli), source)


def report(console: Console, build: str, output: str) -> Any:
    """Write one HTML page about a build."""
    from tools.rig.steps import report as step

    its, earlier = step.chosen(_records(), build)
    # as typed: a slash at its end names a folder
    return step.report(console, its, earlier, step.root_of(its), output or None)


def diagnose(console: Console, logs: Sequence[str], lang: str) -> Any:
    """Say why something failed; without a log, why the last failed build did."""
    from tools.rig.steps import diagnose as step

    return step.diagnose(console, logs, _records(), lang=lang)


def bundle(console: Console, output: str, show: bool, **cli: str) -> Any:
    """Make one archive for an issue report, or show what would be in it."""
    from tools.rig.steps import bundle as step

    file = checked_path(output) if output else None
    if cli.get("source"):
        # what is broken there is what a bundle is made for, but not a slip of the pen
        target.need_some_folder(folder(cli["source"]))
    return step.bundle(console, cli, output=file, show=show)


def root_in_force(cli: Mapping[str, str] | None = None) -> StateRoot | None:
    """Return the state root that holds builds, or records of any; else None."""
    named = settings_for(cli or {}).local_root
    if named is None:
        roots = [survey.remembered_root(survey.remembered_file(os.environ))[0]]
    else:
        # in a folder of the user's, ours is one below it
        roots = [named, named / survey.NAME]
    there = [StateRoot(root) for root in roots if root]
    for root in there:
        access.need_open(root.records)
    return next((root for root in there if _is_used(root)), None)


def _is_used(root: StateRoot) -> bool:
    # a build whose record is gone can still be switched to
    built = record.listing(root) or placed.places(root)
    return bool(built) or (root.path / "servers").is_dir()


def _records() -> list[dict[str, Any]]:
    root = root_in_force()
    return record.listing(root) if root else []


def scene(
    console: Console, cli: dict[str, str], *, lay_out: bool = True, python: bool = True
) -> Scene:
    """Return the scene of typed words; see :func:`tools.rig.steps.scene.find`."""
    console.flags = cli
    settings = settings_for(cli)
    # a command that lays nothing out only reads
    seams = scenes.Seams() if lay_out else scenes.Seams(facts=_facts_to_read)
    if not (lay_out or python):
        # what looks at an environment needs nothing that could be built
        seams = replace(seams, find_target=linked.target_of)
    if settings.local_root is not None and not lay_out:
        access.need_open(settings.local_root / "venvs")
    return scenes.find(console, settings, lay_out=lay_out, python=python, seams=seams)


def _facts_to_read(*args: Any, **options: Any) -> PlaceFacts:
    return replace(survey.facts(*args, **options), reading=True)


def _plain(result: Any) -> Data:
    return Data(asdict(result))
