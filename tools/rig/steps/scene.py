# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a command works on: target, profile, state root and environment, found once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.config import Settings, resolve
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import certificates, environment, place, sample, survey, target
from tools.rig.builds.place import GIB, PlaceFacts, PlacePlan
from tools.rig.builds.profile import Profile
from tools.rig.builds.target import HERE, Target
from tools.rig.host.look import Link
from tools.rig.steps.git_safe import need_git

SAMPLE = "sample"
"""Folder below the state root in which the sample is laid out."""


@dataclass(frozen=True)
class Scene:
    """The stage of one command.

    ``placing`` is the plan of ``venv-local`` for this checkout; ``mirrors`` are the git
    mirrors in force, those of the sample's own dependency included.
    """

    settings: Settings
    env: Mapping[str, str]
    profile: Profile
    checkout: Path
    is_sample: bool
    root: StateRoot
    environment: Path
    deps: Path
    placing: PlacePlan
    mirrors: Mapping[str, str]

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.environment / "bin" / "python"


@dataclass(frozen=True)
class Seams:
    """What finding a scene asks; tests put fakes here."""

    find_target: Callable[[Settings], Target] = target.find_here
    facts: Callable[..., PlaceFacts] = survey.facts
    lay_out: Callable[..., Any] = sample.lay_out
    need_git: Callable[[Mapping[str, str]], str] = need_git


def settings_for(
    cli: Mapping[str, object], env: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings in force for a command line.

    Parameters
    ----------
    cli
        Values as typed; empty ones count as not given.
    env
        Our own environment when None.
    """
    env = os.environ if env is None else env
    given = {k: v for k, v in cli.items() if v not in (None, "")}
    file = env.get("ONECAT_CONFIG")
    source = given.get("source") or env.get("ONECAT_SOURCE")
    beside = Path(os.path.expanduser(str(source)), "rig.toml") if source else None
    # that of another user may be closed to us, which is told where it is looked at
    if beside is None or not os.path.isfile(beside):
        beside = HERE / "rig.toml"
    return resolve(given, env, Path(file) if file else beside)


def find(
    console: Console,
    settings: Settings,
    env: Mapping[str, str] | None = None,
    *,
    lay_out: bool = True,
    python: bool = True,
    seams: Seams | None = None,
) -> Scene:
    """Return the scene of a command.

    Parameters
    ----------
    settings
        See :func:`settings_for`.
    env
        Our own environment when None.
    lay_out
        Lay the sample out where it is the target. A command that only looks says no and
        gets the place where it lies or would lie.
    python
        Look for a Python for the environment, which takes seconds. A command that makes
        no environment says no.
    seams
        What is asked.

    Raises
    ------
    RigError
        When there is no target, no place or no Python for it, or ``TMPDIR`` is no
        folder.
    """
    env = os.environ if env is None else env
    environment.check_tmpdir(env)
    ask = seams or Seams()
    if not python:
        ask = dataclasses.replace(ask, facts=_without_python(ask.facts))
    found = ask.find_target(settings)
    profile = found.profile
    if found.path is not None:
        return at(settings, found.path, profile, env, seams=ask)
    console.say("no 1Cat-vLLM checkout here: taking the bundled sample target")
    placing = _place_sample(ask, settings, profile, env, lay_out)
    bare = placing.facts.checkout.real.with_name("rig-sample-dep.git")
    mirrors = {sample.DEPENDENCY_URL: os.fspath(bare), **settings.git_mirrors}
    return _scene(settings, env, profile, placing, mirrors, True)


def at(
    settings: Settings,
    checkout: Path,
    profile: Profile,
    env: Mapping[str, str] | None = None,
    *,
    seams: Seams | None = None,
) -> Scene:
    """Return the scene of a checkout and a profile that are both known.

    Raises
    ------
    RigError
        When there is no place or no Python for it.
    """
    env = os.environ if env is None else env
    environment.check_tmpdir(env)
    facts = _survey(seams or Seams(), settings, checkout, profile, env)
    placing = place.plan(facts, profile.need_gib * GIB)
    return _scene(settings, env, profile, placing, settings.git_mirrors, False)


def _scene(
    settings: Settings,
    env: Mapping[str, str],
    profile: Profile,
    placing: PlacePlan,
    mirrors: Mapping[str, str],
    is_sample: bool,
) -> Scene:
    return Scene(
        settings=settings,
        # behind a proxy that opens TLS only the system knows whom to trust
        env={**env, **certificates.system_store(env)},
        profile=profile,
        checkout=placing.facts.checkout.real,
        is_sample=is_sample,
        root=placing.root,
        environment=placing.environment,
        deps=placing.deps,
        placing=placing,
        mirrors=mirrors,
    )


def _survey(
    ask: Seams,
    settings: Settings,
    checkout: Path,
    profile: Profile,
    env: Mapping[str, str],
    **more: Any,
) -> PlaceFacts:
    found = ask.facts(
        settings,
        checkout,
        python=profile.python,
        env=env,
        # torch's extensions include Python.h; the sample does without
        need_headers=profile.torch is not None,
        **more,
    )
    # where the target does not say it, as before it is laid out, its profile does
    requires = found.requires_python or profile.python_admits
    return dataclasses.replace(found, requires_python=requires)


def _without_python(facts: Callable[..., PlaceFacts]) -> Callable[..., PlaceFacts]:
    """Return a survey that asks for no Python, and does not miss one."""

    def look(*args: Any, **options: Any) -> PlaceFacts:
        none = survey.Seams(find_pythons=None)
        return dataclasses.replace(
            facts(*args, **{**options, "seams": none}), offline=False
        )

    return look


def _place_sample(
    ask: Seams,
    settings: Settings,
    profile: Profile,
    env: Mapping[str, str],
    lay_out: bool,
) -> PlacePlan:
    """Plan the sample's place: it lies in the root that is chosen for it.

    So one look chooses the root and measures the disks, and a second one, which
    measures nothing, sees the sample and finds it a Python.
    """
    need = profile.need_gib * GIB
    quick = dataclasses.replace(ask, facts=_without_python(ask.facts))
    first = _survey(quick, settings, HERE, profile, env)
    verdicts = place.choose(first, need)
    best = verdicts[-1].candidate
    root = StateRoot(best.root)
    checkout = root.path / SAMPLE / "rig-sample"
    if lay_out:
        ask.need_git(env)
        root.make(root.path)
        ask.lay_out(checkout.parent, env)
    there = dataclasses.replace(
        settings, values={**settings.values, "local_root": root.path}
    )
    seen = checkout if checkout.is_dir() else HERE
    second = _survey(ask, there, seen, profile, env, measure_s=0)
    own = dataclasses.replace(best, venv="absent", version="")
    its = second.checkout
    if seen == checkout:
        made = second.candidates[0]
        own = dataclasses.replace(best, venv=made.venv, version=made.version)
    else:
        name = place_id(checkout)
        its = dataclasses.replace(
            its, path=checkout, real=checkout, place=name, link=Link("absent")
        )
    others = [v.candidate for v in verdicts[:-1]]
    facts = dataclasses.replace(
        second, checkout=its, checkout_disk=best.disk, candidates=(*others, own)
    )
    return place.plan(facts, need)
