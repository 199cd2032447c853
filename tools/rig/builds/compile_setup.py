# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How the compiles of a build are run: admission, cache, and a folder that lasts.

The plan names all of it and makes nothing; :func:`make` makes it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.state import StateRoot
from tools.rig.builds import compile_cache, work_folder
from tools.rig.builds.admission import forecast, launcher
from tools.rig.builds.admission.budget import Budget, reserve
from tools.rig.builds.admission.client import Files
from tools.rig.builds.admission.forecast import JobPlan
from tools.rig.builds.admission.predictions import Predictions
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.profile import Profile
from tools.rig.builds.work_folder import Names, WorkFolder
from tools.rig.host import memory

PREDICTIONS = "predictions"


@dataclass(frozen=True)
class Machine:
    """What compiles may take: ``budget`` bytes of memory now, and ``cores``.

    ``most`` is what the budget is while nothing else runs; what depends on it is the
    same in each build.
    """

    budget: int
    cores: int
    most: int


@dataclass(frozen=True)
class CompileSetup:
    """What stands around every compile.

    ``admit`` and ``script`` are the launchers before a compiler, ``scripts`` the real
    folder that they are made in; ``counts`` is where ccache says what it did.
    ``expected_s`` is None where nothing was measured before.
    """

    jobs: JobPlan
    machine: Machine
    cache: CompileCache
    work: WorkFolder
    files: Files
    scripts: Path
    admit: Path
    script: Path
    counts: Path
    known: int = 0
    expected_s: float | None = None


def machine(cores: int) -> Machine:
    """Return what compiles may take on this machine now."""
    held = memory.read()
    most = min(held.total, held.limit or held.total)
    return Machine(Budget.of_machine().bytes, cores, most - reserve(most))


def plan(
    profile: Profile,
    root: StateRoot,
    place: str,
    checkout: Path,
    near: Mapping[str, Path],
    *,
    release: str,
    compiler: str,
    build_id: str,
    python: str,
    asked: tuple[int | None, str],
    cache: CompileCache,
    at: Machine,
    shims: Path,
) -> CompileSetup:
    """Return the setup of a build.

    Parameters
    ----------
    profile
        What is built.
    root, place, checkout
        Where; ``place`` is the checkout's short name.
    near
        What the compile cache must not see the real paths of, beside the checkout.
    release, compiler
        Of the toolkit and of the host compiler, as they name the lasting folder.
    build_id
        The build's id.
    python
        Version of the environment's Python, like ``3.12.3``.
    asked
        How many jobs the user wants (None for no wish), and where that came from.
    cache
        See :func:`compile_cache.choose`.
    at
        See :func:`machine`.
    shims
        The state root's folder of scripts by a name without blanks.
    """
    measured = root.path / PREDICTIONS / f"{profile.name}-{release}.json"
    known = Predictions.load(measured)
    jobs = forecast.plan_jobs(asked[0], asked[1], at.most, at.cores)
    # the environment's Python is made later; setuptools names folders by these two
    tag = "".join(python.split(".")[:2])
    names = Names(sysconfig.get_platform(), f"cpython-{tag}")
    work = work_folder.plan(
        root,
        place,
        work_folder.variant(profile.name, release, compiler),
        checkout,
        names,
        near,
        profile.subprojects,
    )
    expected = None
    if known.curves:
        keys = list(known.curves)
        expected = forecast.expected_seconds(keys, known, at.budget, at.cores, jobs.cap)
    return CompileSetup(
        jobs=jobs,
        machine=at,
        cache=cache,
        work=work,
        files=Files.of(root.logs, build_id, measured),
        scripts=root.shims,
        admit=shims / launcher.NAME,
        script=shims / compile_cache.SCRIPT,
        counts=root.logs / f"{build_id}.ccache",
        known=len(known.curves),
        expected_s=expected,
    )


def environment(setup: CompileSetup, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that put launchers and cache in front of every compile.

    Parameters
    ----------
    env
        The build's environment as it is so far, the user's included.
    """
    add = {"CCACHE_STATSLOG": str(setup.counts)} if setup.cache.name == "ccache" else {}
    forced = compile_cache.forced(
        setup.cache, setup.script, {**env, **add}, setup.work, [str(setup.admit)]
    )
    return {**add, **forced}


def make(setup: CompileSetup, root: StateRoot) -> list[str]:
    """Make scripts and folder; return a line for each thing to know.

    The build's lock must be held.

    Raises
    ------
    StepFailed
        When the state root cannot be written.
    """
    root.make(root.shims)
    launcher.publish(setup.scripts, setup.scripts)
    compile_cache.launcher(setup.scripts)
    root.make(setup.files.predictions.parent)
    return work_folder.lay_out(setup.work, root)
