# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``cuda-toolkit``: a toolkit and a host compiler that fit the profile, as a pair."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.config import Settings
from tools.rig.base.console import Console, size
from tools.rig.base.errors import CannotError, StepFailed, UsageError, quoted
from tools.rig.base.paths import checked_path
from tools.rig.base.state import StateRoot
from tools.rig.builds import compiler_kit, toolkit_kit
from tools.rig.builds.pair import PairPlan, choose, user_set
from tools.rig.builds.private_apt import archive_owner, have_dpkg
from tools.rig.builds.profile import Profile
from tools.rig.builds.tools import uv_command
from tools.rig.host import compilers, cuda, system
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.steps import nvcc_flags
from tools.rig.steps.proof import prove_once
from tools.rig.steps.shim import ShimResult, shim
from tools.rig.steps.trees import LINK_PLACES, is_plain, link_for, plain_path

_SHELL_SIGNS = '"$`\\'
"""nvcc starts its parts through a shell, in double quotes: these break a path."""


@dataclass(frozen=True)
class Pair:
    """A toolkit and a host compiler that were proved to work together.

    ``env`` is what a build adds to its environment to use them, the glibc shim
    included; ``notes`` are one-line work-rounds for the summary.
    """

    toolkit: Toolkit
    compiler: HostCompiler
    shim: ShimResult
    env: Mapping[str, str]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the pair as plain data."""
        return {
            "toolkit": str(self.toolkit.root),
            "version": self.toolkit.version,
            "origin": self.toolkit.origin,
            "compiler": str(self.compiler.path),
            "compiler_version": f"{self.compiler.family} {self.compiler.version}",
            "shim": self.shim.reason,
            "env": dict(self.env),
            "notes": list(self.notes),
        }


def plan(
    settings: Settings, profile: Profile, root: StateRoot | None, env: Mapping[str, str]
) -> PairPlan:
    """Look at the machine and say which pair will be used, without changing anything.

    Raises
    ------
    UsageError
        When ``CUDA_HOME`` names no folder or one without nvcc, or ``NVCC_CCBIN`` no
        program, or nvcc does not take what is in ``NVCC_PREPEND_FLAGS`` or
        ``NVCC_APPEND_FLAGS``.
    """
    check_user_settings(env)
    found = cuda.find(env, root.toolkits if root else None)
    here = compilers.find(env)
    hosts = [*here, *(compiler_kit.brought(root.toolkits) if root else ())]
    distribution, dpkg = system.distribution(), have_dpkg()
    recipes: list[toolkit_kit.Recipe] = []
    why = "ONECAT_OFFLINE=1 forbids bringing one"
    if not settings.offline:
        why = "none can be brought on this distribution"
        if dpkg:
            owner = archive_owner(distribution)
            recipes = toolkit_kit.recipes(owner, profile.toolkit_parts)
    made = choose(
        found, hosts, profile, recipes, set_by_user=user_set(env), no_recipes=why
    )
    nvcc_flags.check_plan(made, found, env)
    if made.problem or made.compiler or made.compiler_max is None:
        return made
    why, hint = compiler_kit.cannot(
        made.compiler_max, here, distribution, offline=settings.offline, dpkg=dpkg
    )
    if not why:
        return made
    chosen = made.toolkit or made.recipe
    assert chosen is not None
    return replace(
        made,
        problem=f"no host compiler that CUDA {chosen.release} takes (gcc up to "
        f"{made.compiler_max}) is here, and {why}",
        hint=hint,
    )


def act(
    console: Console,
    pair_plan: PairPlan,
    settings: Settings,
    profile: Profile,
    root: StateRoot,
    env: Mapping[str, str],
) -> Pair:
    """Bring what the plan says is missing, and prove the pair by a compiled kernel.

    Raises
    ------
    CannotError
        When nothing fits and nothing can be brought (exit 3).
    StepFailed
        When a download or the proof fails.
    """
    for reason in pair_plan.reasons:
        console.say(f"  {reason}")
    if pair_plan.problem:
        raise CannotError(pair_plan.problem, hint=pair_plan.hint)
    notes = []
    toolkit = pair_plan.toolkit
    if pair_plan.recipe:
        recipe = pair_plan.recipe
        console.say(
            f"  bringing CUDA {recipe.release} from {recipe.distribution} "
            f"{recipe.suite} (about {size(recipe.bytes)}), without root"
        )
        root.make(root.toolkits)
        place = toolkit_kit.provision(
            recipe, root.toolkits, env, mirror=settings.apt_mirror, uv=uv_command()
        )
        toolkit = cuda.probe(place, "provisioned")
        if toolkit.problem:
            raise StepFailed(
                f"the brought toolkit does not work: {toolkit.problem}",
                hint=f"{quoted(toolkit.nvcc)} --version",
            )
        nvcc_flags.check(toolkit, env)
        notes.append(f"CUDA {toolkit.version} brought into {place}: none here fitted")
    assert toolkit is not None
    compiler = pair_plan.compiler
    if compiler is None:
        assert pair_plan.compiler_max is not None
        console.say(f"  bringing g++ {pair_plan.compiler_max} or older, without root")
        root.make(root.toolkits)
        compiler = compiler_kit.bring(
            pair_plan.compiler_max, root.toolkits, env, settings.apt_mirror
        )
        why = compilers.refusal(toolkit.release, compiler, profile.cxx)
        if why:
            raise StepFailed(
                f"the brought compiler does not fit: {why}",
                hint="invoke doctor --only compiler",
            )
        notes.append(f"{compiler.describe()} brought: no compiler here fitted")
    return prove(console, toolkit, compiler, profile, root, env, notes)


def prove(
    console: Console,
    toolkit: Toolkit,
    compiler: HostCompiler,
    profile: Profile,
    root: StateRoot,
    env: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Pair:
    """Compile a kernel to a cubin for every architecture of the profile.

    The glibc shim is probed for on the way, since no toolkit that can target Volta is
    clean on glibc >= 2.41.

    Raises
    ------
    StepFailed
        When the compiler fails, or the result holds no code for an architecture.
    """
    toolkit, compiler = called(toolkit, compiler)
    chain = pair_env(toolkit.root, compiler, env)
    root.make(root.shims)
    made = shim(console, toolkit, compiler, {**env, **chain}, root.shims)
    chain.update(made.env)
    root.make(root.tmp)
    prove_once(toolkit, compiler, profile, root, chain, env)
    all_notes = [*notes]
    if made.needed:
        all_notes.append(f"glibc shim in force: {made.reason}")
    console.mark("ok", f"{toolkit.describe()}; host compiler {compiler.describe()}")
    return Pair(toolkit, compiler, made, chain, tuple(all_notes))


def called(
    toolkit: Toolkit,
    compiler: HostCompiler,
    plain: Callable[[Path], Path] = plain_path,
) -> tuple[Toolkit, HostCompiler]:
    """Return both under names that every tool below takes as they are."""
    if set(str(toolkit.root)) & set(_SHELL_SIGNS):
        home = plain(toolkit.root)
        toolkit = replace(toolkit, root=home, nvcc=home / "bin" / "nvcc")
    if not is_plain(compiler.path):
        told = plain(compiler.path.parent) / compiler.path.name
        compiler = replace(compiler, path=told)
    return toolkit, compiler


def pair_env(
    home: Path, compiler: HostCompiler | None, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables by which every build tool finds this pair.

    CMake takes ``CUDACXX`` and ``CUDAHOSTCXX``, torch ``CUDA_HOME`` and ``CXX`` (it
    refuses to compile when that one is newer than the toolkit takes); the legacy
    FindCUDA that torch's CMake files still call looks at ``CUDA_PATH`` and ``PATH``,
    and takes any other nvcc that it meets first. ``NVCC_CCBIN`` is unknown to the nvcc
    of 11.8 and 12.4, which read ``NVCC_PREPEND_FLAGS``.
    """
    nvcc = home / "bin" / "nvcc"
    found = {
        "CUDA_HOME": str(home),
        "CUDA_PATH": str(home),
        "CUDACXX": str(nvcc),
        "PATH": f"{nvcc.parent}{os.pathsep}{env.get('PATH', os.defpath)}",
    }
    if compiler is None:
        return found
    host = _told(compiler.path)
    found["NVCC_CCBIN"] = str(host)
    theirs = env.get("NVCC_PREPEND_FLAGS", "")
    chosen = compilers.user_choice(env)
    if chosen is None or not chosen.variable.endswith("_FLAGS"):
        found["NVCC_PREPEND_FLAGS"] = f"-ccbin={host} {theirs}".strip()
    if not env.get("CUDAHOSTCXX"):
        found["CUDAHOSTCXX"] = str(host)
    if not env.get("CXX") and not _is_default(compiler.path, env):
        found["CXX"] = str(host)
    return found


def _told(path: Path) -> Path:
    """Return how nvcc is told a path: it splits its variables on blanks."""
    if is_plain(path):
        return path
    return link_for(path.parent, LINK_PLACES[0]) / path.name


def _is_default(compiler: Path, env: Mapping[str, str]) -> bool:
    found = shutil.which("c++", path=env.get("PATH", os.defpath))
    return found is not None and Path(found).resolve() == compiler.resolve()


def check_user_settings(env: Mapping[str, str]) -> None:
    """Refuse a toolkit or host compiler that the user names and that is not there.

    Raises
    ------
    UsageError
        See :func:`plan`.
    """
    home = env.get("CUDA_HOME")
    if home:
        place = checked_path(home)
        hint = "unset CUDA_HOME, or set it to a toolkit's folder"
        if not place.is_dir():
            raise UsageError(f"CUDA_HOME={home} does not exist", hint=hint)
        if not (place / "bin" / "nvcc").exists():
            raise UsageError(f"CUDA_HOME={home} holds no bin/nvcc", hint=hint)
    chosen = compilers.user_choice(env)
    if chosen and chosen.path is None:
        raise UsageError(
            f"{chosen.variable} names the host compiler {chosen.value}, which does "
            "not exist",
            hint=f"unset {chosen.variable}",
        )
