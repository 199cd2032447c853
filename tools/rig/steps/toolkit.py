# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``cuda-toolkit``: a toolkit and a host compiler that fit the profile, as a pair."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.config import Settings
from tools.rig.base.console import Console, size
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.base.run import run
from tools.rig.base.state import StateRoot
from tools.rig.builds import compiler_kit, toolkit_kit
from tools.rig.builds.pair import PairPlan, choose
from tools.rig.builds.private_apt import archive_owner, have_dpkg
from tools.rig.builds.profile import Profile
from tools.rig.builds.tools import uv_command
from tools.rig.host import compilers, cuda, system
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cubins import read as read_cubins
from tools.rig.host.cuda import Toolkit
from tools.rig.steps.shim import ShimResult, shim

KERNEL = """\
__global__ void twice(float *p) { p[threadIdx.x] *= 2; }
"""

COMPILE_S = 300.0
"""Seconds that the proof kernel may take to compile."""


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
        program.
    """
    _check_user_settings(env)
    found = cuda.find(env, root.toolkits if root else None)
    hosts = compilers.find(env)
    if root:
        hosts += compiler_kit.brought(root.toolkits)
    recipes: list[toolkit_kit.Recipe] = []
    if not settings.offline and have_dpkg():
        owner = archive_owner(system.distribution())
        recipes = toolkit_kit.recipes(owner, profile.toolkit_parts)
    chosen = frozenset(k for k in ("CUDA_HOME", "NVCC_CCBIN") if env.get(k))
    return choose(found, hosts, profile, recipes, set_by_user=chosen)


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
            raise StepFailed(f"the brought toolkit does not work: {toolkit.problem}")
        notes.append(f"CUDA {toolkit.version} brought into {place}: none here fitted")
    assert toolkit is not None
    compiler = pair_plan.compiler
    if compiler is None:
        assert pair_plan.compiler_max is not None
        compiler = compiler_kit.bring(
            pair_plan.compiler_max, root.toolkits, env, settings.apt_mirror
        )
        why = compilers.refusal(toolkit.release, compiler, profile.cxx)
        if why:
            raise StepFailed(f"the brought compiler does not fit: {why}")
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
    chain = pair_env(toolkit.root, compiler, env)
    root.make(root.shims)
    made = shim(console, toolkit, compiler, {**env, **chain}, root.shims)
    chain.update(made.env)
    root.make(root.tmp)
    work = root.tmp / f"proof-{os.getpid()}"
    work.mkdir(exist_ok=True)
    try:
        for sm in profile.sms:
            _prove_one(toolkit, sm, work, {**env, **chain})
    finally:
        for file in work.iterdir():
            file.unlink()
        work.rmdir()
    all_notes = [*notes]
    if made.needed:
        all_notes.append(f"glibc shim in force: {made.reason}")
    console.mark("ok", f"{toolkit.describe()}; host compiler {compiler.describe()}")
    return Pair(toolkit, compiler, made, chain, tuple(all_notes))


def pair_env(
    home: Path, compiler: HostCompiler | None, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables by which every build tool finds this pair.

    CMake takes ``CUDACXX``, torch ``CUDA_HOME``, nvcc ``NVCC_CCBIN``; the legacy
    FindCUDA that torch's CMake files still call looks at ``CUDA_PATH`` and ``PATH``, and
    takes any other nvcc that it meets first.
    """
    nvcc = home / "bin" / "nvcc"
    found = {
        "CUDA_HOME": str(home),
        "CUDA_PATH": str(home),
        "CUDACXX": str(nvcc),
        "PATH": f"{nvcc.parent}{os.pathsep}{env.get('PATH', os.defpath)}",
    }
    if compiler is not None:
        found["NVCC_CCBIN"] = str(compiler.path)
    return found


def _prove_one(toolkit: Toolkit, sm: int, work: Path, env: Mapping[str, str]) -> None:
    source = work / "twice.cu"
    source.write_text(KERNEL)
    made = work / f"twice.sm_{sm}.o"
    argv = [toolkit.nvcc, f"-arch=sm_{sm}", "-c", source, "-o", made]
    answer = run(argv, env=env, timeout=COMPILE_S)
    if not answer.ok:
        raise StepFailed(
            f"nvcc {toolkit.version} cannot compile a kernel for sm_{sm}",
            details=(answer.out + answer.err).splitlines()[:20],
            hint="invoke doctor --only toolchain",
        )
    content = read_cubins(made, toolkit.cuobjdump)
    if sm not in content.sass:
        raise StepFailed(
            f"the compiled kernel holds no sm_{sm} code",
            details=[content.problem or f"it holds {content.sass or 'none'}"],
        )


def _check_user_settings(env: Mapping[str, str]) -> None:
    home = env.get("CUDA_HOME")
    if home:
        place = Path(home)
        if not place.is_dir():
            raise UsageError(
                f"CUDA_HOME={home} does not exist",
                hint="unset CUDA_HOME, or set it to a toolkit's folder",
            )
        if not (place / "bin" / "nvcc").exists():
            raise UsageError(
                f"CUDA_HOME={home} holds no bin/nvcc",
                hint="unset CUDA_HOME, or set it to a toolkit's folder",
            )
    ccbin = env.get("NVCC_CCBIN")
    if ccbin and not compilers.find({"NVCC_CCBIN": ccbin, "PATH": env.get("PATH", "")}):
        raise UsageError(f"NVCC_CCBIN={ccbin} does not exist", hint="unset NVCC_CCBIN")
