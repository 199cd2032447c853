# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Chooses toolkit and host compiler together, since one decides which other fits.

Pure: it reads nothing but its arguments. A toolkit fits a profile when it can emit
every wanted architecture, lies within the profile's range and has the parts that the
target compiles against; a compiler fits when that toolkit takes it and it speaks the
target's C++ standard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from tools.rig.builds.profile import Profile
from tools.rig.builds.toolkit_kit import Recipe
from tools.rig.host.compilers import HostCompiler, refusal
from tools.rig.host.cuda import Toolkit

_FULL_HEADERS = ("cublas_v2.h", "cusparse.h", "cusolverDn.h", "curand.h", "nvrtc.h")


@dataclass(frozen=True)
class PairPlan:
    """What to compile with, or what must be brought first.

    Exactly one of ``toolkit`` and ``recipe`` is set when ``problem`` is empty.
    ``compiler`` is None when one must be brought; ``compiler_max`` is then the newest
    gcc major that will do. ``reasons`` holds one line for each thing passed over.
    """

    toolkit: Toolkit | None
    recipe: Recipe | None
    compiler: HostCompiler | None
    compiler_max: int | None
    reasons: tuple[str, ...]
    problem: str = ""
    hint: str = ""


def toolkit_refusal(toolkit: Toolkit, profile: Profile) -> str:
    """Say why a toolkit does not fit a profile, or return an empty string."""
    if toolkit.problem:
        return toolkit.problem
    missing = [sm for sm in profile.sms if sm not in toolkit.sms]
    if missing:
        return (
            f"CUDA {toolkit.release} cannot compile for sm_{missing[0]} "
            f"(its lowest is sm_{toolkit.sms[0]})"
        )
    version = Version(toolkit.release)
    if version < Version(profile.toolkit_min):
        return f"CUDA {toolkit.release} is older than {profile.toolkit_min}"
    if version > Version(profile.toolkit_max):
        return f"CUDA {toolkit.release} is newer than {profile.toolkit_max}"
    if profile.toolkit_parts == "full":
        include = toolkit.root / "include"
        lacking = [h for h in _FULL_HEADERS if not (include / h).exists()]
        if lacking:
            return f"has no {lacking[0]}, which the target compiles against"
    return ""


def choose(
    toolkits: Sequence[Toolkit],
    compilers: Sequence[HostCompiler],
    profile: Profile,
    recipes: Sequence[Recipe],
    *,
    set_by_user: frozenset[str] = frozenset(),
) -> PairPlan:
    """Choose a pair for a profile.

    Parameters
    ----------
    toolkits, compilers
        What the machine has, in the order in which they were found.
    profile
        What the target needs.
    recipes
        What could be brought, best first.
    set_by_user
        Which of ``CUDA_HOME`` and ``NVCC_CCBIN`` the user has set: those are honoured
        or refused, never replaced silently.
    """
    reasons = []
    fitting = []
    for toolkit in toolkits:
        why = toolkit_refusal(toolkit, profile)
        if not why:
            fitting.append(toolkit)
            continue
        reasons.append(f"passed over {toolkit.describe()}: {why}")
        if toolkit.origin == "CUDA_HOME" and "CUDA_HOME" in set_by_user:
            return PairPlan(
                None,
                None,
                None,
                None,
                tuple(reasons),
                f"CUDA_HOME is set to {toolkit.root}, but: {why}",
                "unset CUDA_HOME, and one that fits is found or brought",
            )
    usable = compilers
    if "NVCC_CCBIN" in set_by_user and compilers:
        usable = compilers[:1]
    wanted = _wanted_release(profile)
    fitting.sort(key=lambda t: _rank(t, wanted))
    for toolkit in fitting:
        for compiler in usable:
            why = refusal(toolkit.release, compiler, profile.cxx)
            if not why:
                return PairPlan(toolkit, None, compiler, None, tuple(reasons))
            reasons.append(f"passed over {compiler.describe()}: {why}")
    fit = [r for r in recipes if _recipe_fits(r, profile)]
    for recipe in fit:
        for compiler in usable:
            if not refusal(recipe.release, compiler, profile.cxx):
                if fitting:
                    # a toolkit is here and only lacks a compiler; bringing another
                    # toolkit that takes the compiler at hand is the smaller change
                    reasons.append("no compiler here suits the toolkits here")
                return PairPlan(None, recipe, compiler, None, tuple(reasons))
    from tools.rig.host import compat

    if fitting:
        ceiling = compat.gcc_max(fitting[0].release)
        return PairPlan(fitting[0], None, None, ceiling, tuple(reasons))
    if fit:
        ceiling = compat.gcc_max(fit[0].release)
        return PairPlan(None, fit[0], None, ceiling, tuple(reasons))
    return PairPlan(
        None,
        None,
        None,
        None,
        tuple(reasons),
        f"no CUDA toolkit between {profile.toolkit_min} and {profile.toolkit_max} here, "
        "and none can be brought on this distribution",
        f"install CUDA {profile.toolkit_max} or older and set CUDA_HOME",
    )


def _recipe_fits(recipe: Recipe, profile: Profile) -> bool:
    low, high = Version(profile.toolkit_min), Version(profile.toolkit_max)
    return recipe.parts == profile.toolkit_parts and (
        low <= Version(recipe.release) <= high
    )


def _wanted_release(profile: Profile) -> str:
    """Return the release that torch's own wheel was made with (cu128 -> 12.8)."""
    digits = (profile.torch_variant or "").removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else profile.toolkit_max


def _rank(toolkit: Toolkit, wanted: str) -> tuple[bool, bool, bool, tuple[int, ...]]:
    """Sort key: the user's own first, torch's release next, then the newest."""
    newest = tuple(-int(n) for n in toolkit.version.split("."))
    return (
        toolkit.origin != "CUDA_HOME",
        toolkit.release != wanted,
        toolkit.origin == "provisioned",
        newest,
    )
