# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a command works on: target, profile, state root and environment, found once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.config import Settings, resolve
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import certificates, place, sample, survey, target
from tools.rig.builds.place import GIB, PlacePlan
from tools.rig.builds.profile import Profile
from tools.rig.builds.target import HERE

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
    return resolve(given, env, Path(file) if file else HERE / "rig.toml")


def find(
    console: Console,
    settings: Settings,
    env: Mapping[str, str] | None = None,
    *,
    lay_out: bool = True,
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
        gets the place where it would lie.

    Raises
    ------
    RigError
        When there is no target, no place or no Python for it.
    """
    env = os.environ if env is None else env
    env = {**env, **certificates.system_store(env)}
    found = target.find(settings)
    profile = found.profile
    need = profile.need_gib * GIB
    if found.path is not None:
        facts = survey.facts(settings, found.path, python=profile.python, env=env, need_headers=True)
        placing = place.plan(facts, need)
        return Scene(
            settings,
            env,
            profile,
            facts.checkout.real,
            False,
            placing.root,
            placing.environment,
            placing.deps,
            placing,
            settings.git_mirrors,
        )
    console.say("no 1Cat-vLLM checkout here: building the bundled sample target")
    facts = survey.facts(settings, HERE, python=profile.python, env=env, need_headers=True)
    placing = place.plan(facts, need)
    folder = placing.root.path / SAMPLE
    checkout = folder / "rig-sample"
    if lay_out:
        placing.root.make(placing.root.path)
        checkout = sample.lay_out(folder, env).path
        values = {**settings.values, "local_root": placing.root.path}
        there = dataclasses.replace(settings, values=values)
        facts = survey.facts(there, checkout, python=profile.python, env=env, need_headers=True)
        placing = place.plan(facts, need)
    mirrors = {sample.DEPENDENCY_URL: os.fspath(folder / "rig-sample-dep.git")}
    return Scene(
        settings,
        env,
        profile,
        checkout,
        True,
        placing.root,
        placing.root.venvs / place_id(checkout),
        placing.root.deps / place_id(checkout),
        placing,
        {**mirrors, **settings.git_mirrors},
    )
