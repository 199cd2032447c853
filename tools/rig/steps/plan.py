# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``plan``: gathers the facts of a build and makes its plan, to print and to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tools.rig.base import scratch
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError
from tools.rig.builds import compile_cache, compile_setup, environment, names
from tools.rig.builds import plan as plans
from tools.rig.builds.environment import Places
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.plan import BuildPlan
from tools.rig.builds.tools import uv_command
from tools.rig.host import compat, memory
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.steps import git_safe, shim, toolkit
from tools.rig.steps.scene import Scene
from tools.rig.steps.trees import LINK_PLACES, is_plain, link_for

OFFLINE = {"UV_OFFLINE": "1", "GIT_ALLOW_PROTOCOL": "file"}
"""What forbids uv, and the git that CMake starts, to fetch anything."""


@dataclass(frozen=True)
class Chosen:
    """The toolchain of a build: its variables, its names, and where scripts lie.

    ``shims`` is the state root's folder of scripts by a name without blanks, ``python``
    the version of the environment's Python.
    """

    chain: Mapping[str, str]
    toolchain: str
    release: str
    compiler: str
    python: str
    shims: Path


def variant(compiler: HostCompiler | None, newest: int | None) -> str:
    """Return the host compiler's part of a build folder's name."""
    if compiler is None:
        return f"gcc{newest}"
    return f"{compiler.family}{compiler.major}"


def python_of(scene: Scene) -> str:
    """Return the version of the Python that the environment has or will have."""
    choice = scene.placing.python
    if choice.installed and not choice.download:
        return choice.installed.version
    return choice.download


def preview(console: Console, scene: Scene, *, wheel_only: bool) -> BuildPlan:
    """Return the plan without changing anything.

    What can only be probed once something was brought is named in the notes. What the
    probes would write goes into a folder that is gone afterwards.

    Raises
    ------
    CannotError
        When no toolkit fits and none can be brought.
    UsageError
        When a path holds a sign that no build can succeed with.
    """
    names.check(scene.checkout, scene.root.path)
    pair = toolkit.plan(scene.settings, scene.profile, scene.root, scene.env)
    if pair.problem:
        raise CannotError(pair.problem, details=pair.reasons, hint=pair.hint)
    notes = list(pair.reasons)
    chain: dict[str, str] = {}
    release = ""
    if pair.recipe:
        release = pair.recipe.release
        notes.append(
            f"CUDA {pair.recipe.release} is brought, and the glibc probe follows"
        )
        home = scene.root.toolkits / pair.recipe.folder_name
        chain = toolkit.pair_env(home, pair.compiler, scene.env)
    if pair.compiler is None:
        notes.append(f"a g++ up to {pair.compiler_max} is brought")
    with scratch.folder("plan", _plain_temp()) as aside:
        if pair.toolkit:
            chain = _chain(console, pair.toolkit, pair.compiler, scene, aside)
        git: dict[str, str] = {}
        if scene.checkout.is_dir():
            places = [scene.checkout, scene.deps]
            safe = git_safe.git_safe(console, places, scene.env, aside, scene.mirrors)
            git = _moved(safe.env, aside, scene.root.shims)
        else:
            notes.append(f"git is asked once {scene.checkout} is laid out")
    chosen = Chosen(
        chain,
        describe(pair),
        pair.toolkit.release if pair.toolkit else release,
        variant(pair.compiler, pair.compiler_max),
        python_of(scene),
        _future(scene.root.shims),
    )
    return compose(scene, chosen, git, tuple(notes), "{build}", wheel_only)


def _chain(
    console: Console,
    kit: Toolkit,
    compiler: HostCompiler | None,
    scene: Scene,
    aside: Path,
) -> dict[str, str]:
    """Return the variables for a pair that is here, the glibc shim's included."""
    if compiler is None:
        return toolkit.pair_env(kit.root, None, scene.env)
    kit, compiler = toolkit.called(kit, compiler, _future)
    chain = toolkit.pair_env(kit.root, compiler, scene.env)
    if kit.nvcc.exists() and compiler.path.exists():
        env = {**scene.env, **chain}
        made = shim.shim(console, kit, compiler, env, aside)
        chain.update(_moved(made.env, aside, _future(scene.root.shims)))
    return chain


def _future(path: Path) -> Path:
    """Return what :func:`plain_path` will return, without making a link."""
    return path if is_plain(path) else link_for(path, LINK_PLACES[0])


def _plain_temp() -> str | None:
    plain = is_plain(Path(tempfile.gettempdir()))
    return None if plain else os.fspath(LINK_PLACES[0])


def _moved(env: Mapping[str, str], aside: Path, real: Path) -> dict[str, str]:
    return {k: v.replace(os.fspath(aside), os.fspath(real)) for k, v in env.items()}


def compose(
    scene: Scene,
    chosen: Chosen,
    git: Mapping[str, str],
    notes: tuple[str, ...],
    build_id: str,
    wheel_only: bool,
) -> BuildPlan:
    """Make the plan from facts that are all known."""
    profile, settings = scene.profile, scene.settings
    places = Places(
        scene.checkout,
        scene.environment,
        scene.placing.bench,
        scene.root.generations / scene.environment.name / build_id,
        scene.root.tmp / scene.environment.name,
        scene.deps,
        scene.root.cache,
    )
    cache = compile_cache.choose(settings.compile_cache, scene.env)
    setup = compile_setup.plan(
        profile,
        scene.root,
        scene.environment.name,
        scene.checkout,
        {"env": scene.placing.bench, "deps": scene.deps},
        release=chosen.release,
        compiler=chosen.compiler,
        build_id=build_id,
        python=chosen.python,
        asked=(settings.jobs, settings.origin["jobs"]),
        cache=cache,
        at=compile_setup.machine(memory.cores().usable),
        shims=chosen.shims,
    )
    composed = environment.compose(
        scene.env,
        profile,
        places,
        setup.jobs.ninja,
        {**chosen.chain, **(OFFLINE if settings.offline else {})},
        git,
        cache,
    )
    theirs = {**scene.env, **composed.add}
    add = {**composed.add, **compile_setup.environment(setup, theirs)}
    wheels = scene.root.artifacts / build_id
    if not scene.env.get(plans.CONFIG):
        add[plans.CONFIG] = str(wheels / plans.STORED)
    return plans.make(
        profile,
        places,
        replace(composed, add=add),
        setup,
        chosen.toolchain,
        wheels,
        tuple(uv_command()),
        torch_backend=torch_backend(scene),
        wheel_only=wheel_only,
        notes=notes,
    )


def torch_backend(scene: Scene) -> str | None:
    """Return uv's ``--torch-backend``, or None where the ordinary index will do.

    The ordinary index carries one variant of each torch; only another variant needs
    PyTorch's own index, which many mirrors lack. Never ``auto``: that looks at the
    driver alone and picks CUDA 13 for a V100 (compatibility facts, C3).
    """
    profile = scene.profile
    if not profile.torch or scene.settings.torch_index == "default":
        return None
    if scene.settings.torch_index == "auto":
        rows = compat.torch_variants(profile.torch)
        default = [r["variant"] for r in rows if r.get("pypi_default")]
        if default == [profile.torch_variant]:
            return None
    return profile.torch_variant


def describe(pair: PairPlan) -> str:
    """Return one line for a pair that is chosen or will be brought."""
    first = pair.toolkit.describe() if pair.toolkit else ""
    if pair.recipe:
        recipe = pair.recipe
        first = f"CUDA {recipe.release} from {recipe.distribution} {recipe.suite}"
    second = (
        pair.compiler.describe() if pair.compiler else f"g++ <= {pair.compiler_max}"
    )
    return f"{first}; host compiler {second}"
