# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``plan``: gathers the facts of a build and makes its plan, for printing and for doing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError
from tools.rig.builds import environment, jobs
from tools.rig.builds import plan as plans
from tools.rig.builds.environment import Places
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.plan import BuildPlan
from tools.rig.builds.tools import uv_command
from tools.rig.host import compat, memory
from tools.rig.steps import toolkit
from tools.rig.steps.scene import Scene

CACHES = ("sccache", "ccache")
"""In the order in which the target's setup.py looks for them."""


def preview(console: Console, scene: Scene, *, wheel_only: bool) -> BuildPlan:
    """Return the plan as far as it can be known without changing anything.

    What a probe will only find out once the toolkit is there (the glibc shim) or once
    git has been asked is named in the notes.

    Raises
    ------
    CannotError
        When no toolkit fits and none can be brought.
    """
    pair = toolkit.plan(scene.settings, scene.profile, scene.root, scene.env)
    if pair.problem:
        raise CannotError(pair.problem, details=pair.reasons, hint=pair.hint)
    notes = list(pair.reasons)
    if pair.recipe:
        notes.append(f"CUDA {pair.recipe.release} is brought, and the glibc probe follows")
    if pair.compiler is None:
        notes.append(f"a g++ up to {pair.compiler_max} is brought")
    where = scene.root.toolkits
    home = pair.toolkit.root if pair.toolkit else None
    if home is None and pair.recipe:
        home = where / pair.recipe.folder_name
    chain = toolkit.pair_env(home, pair.compiler, scene.env) if home else {}
    line = describe(pair)
    return compose(scene, chain, {}, line, tuple(notes), "{build}", wheel_only)


def compose(
    scene: Scene,
    chain: Mapping[str, str],
    git: Mapping[str, str],
    toolchain: str,
    notes: tuple[str, ...],
    build_id: str,
    wheel_only: bool,
) -> BuildPlan:
    """Make the plan from facts that are all known."""
    profile, settings = scene.profile, scene.settings
    held = memory.read()
    allowed = jobs.plan(
        settings.jobs,
        settings.origin["jobs"],
        held.usable or None,
        memory.cores().usable,
        profile.gib_per_job,
    )
    places = Places(
        scene.checkout,
        scene.environment,
        scene.root.tmp,
        scene.deps,
        scene.root.cache,
    )
    found = [name for name in CACHES if shutil.which(name, path=scene.env.get("PATH"))]
    composed = environment.compose(
        scene.env,
        profile,
        places,
        allowed.count,
        chain,
        git,
        found[0] if found else "",
    )
    return plans.make(
        profile,
        places,
        composed,
        allowed,
        toolchain,
        scene.root.artifacts / build_id,
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
    second = pair.compiler.describe() if pair.compiler else f"g++ <= {pair.compiler_max}"
    return f"{first}; host compiler {second}"


