# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Chooses toolkit and host compiler together, since one decides which other fits.

It reads nothing but its arguments and the files of the toolkits. A toolkit fits a
profile when it can emit every wanted architecture, lies within the profile's range, has
the parts that the target compiles against and is not damaged; a compiler fits when that
toolkit takes it and it speaks the target's C++ standard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from tools.rig.builds.profile import Profile
from tools.rig.builds.toolkit_kit import Recipe, damage
from tools.rig.host import compat
from tools.rig.host.compilers import HostCompiler, refusal, user_choice
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
    broken = damage(toolkit.root)
    if broken:
        return f"it is damaged: {broken}"
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
    if compat.gcc_max(toolkit.release) is None:
        return f"no facts about CUDA {toolkit.release}"
    if profile.toolkit_parts == "full":
        places = [toolkit.root / "include"]
        places += toolkit.root.glob("targets/*/include")
        lacking = [
            h for h in _FULL_HEADERS if not any((p / h).exists() for p in places)
        ]
        if lacking:
            return f"has no {lacking[0]}, which the target compiles against"
    return ""


def user_set(env: Mapping[str, str]) -> frozenset[str]:
    """Return which half of the pair the user has set, for :func:`choose`."""
    names = {"CUDA_HOME"} if env.get("CUDA_HOME") else set()
    return frozenset(names | ({"NVCC_CCBIN"} if user_choice(env) else set()))


def choose(
    toolkits: Sequence[Toolkit],
    compilers: Sequence[HostCompiler],
    profile: Profile,
    recipes: Sequence[Recipe],
    *,
    set_by_user: frozenset[str] = frozenset(),
    no_recipes: str = "none can be brought on this distribution",
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
    no_recipes
        Why `recipes` is empty, should it matter.
    """
    judged = [(toolkit, toolkit_refusal(toolkit, profile)) for toolkit in toolkits]
    reasons = [
        _passed_over(toolkit.describe(), toolkit.problem, why)
        for toolkit, why in judged
        if why
    ]
    fitting = [toolkit for toolkit, why in judged if not why]
    fit = [r for r in recipes if _recipe_fits(r, profile)]
    fitting.sort(key=lambda t: _rank(t, _wanted_release(profile)))
    if "CUDA_HOME" in set_by_user:
        own = [t for t in toolkits if t.origin == "CUDA_HOME"]
        why = toolkit_refusal(own[0], profile) if own else ""
        if why:
            return _problem(
                reasons,
                f"CUDA_HOME is set to {own[0].root}, but: {why}",
                "unset CUDA_HOME, and one that fits is found or brought",
            )
        fitting, fit = own or fitting, [] if own else fit
    usable = compilers[:1] if "NVCC_CCBIN" in set_by_user else compilers
    for toolkit in fitting:
        for compiler in usable:
            why = refusal(toolkit.release, compiler, profile.cxx)
            if not why:
                return PairPlan(toolkit, None, compiler, None, tuple(reasons))
            reason = _passed_over(compiler.describe(), compiler.problem, why)
            if reason not in reasons:
                reasons.append(reason)
    for recipe in fit:
        for compiler in usable:
            if not refusal(recipe.release, compiler, profile.cxx):
                if fitting:
                    # a toolkit is here and only lacks a compiler; bringing another
                    # toolkit that takes the compiler at hand is the smaller change
                    reasons.append("no compiler here suits the toolkits here")
                return PairPlan(None, recipe, compiler, None, tuple(reasons))
    if not fitting and not fit:
        return _problem(
            reasons,
            f"no CUDA toolkit {_span(profile)} here, and {no_recipes}",
            f"install CUDA {profile.toolkit_max}"
            + (" or older" if profile.toolkit_min != profile.toolkit_max else "")
            + " and set CUDA_HOME",
        )
    release = fitting[0].release if fitting else fit[0].release
    if "NVCC_CCBIN" in set_by_user and usable:
        why = refusal(release, usable[0], profile.cxx)
        return _problem(
            reasons,
            f"the host compiler is set to {usable[0].path}, but: {why}",
            "unset NVCC_CCBIN (and CUDAHOSTCXX, and -ccbin in NVCC_PREPEND_FLAGS)",
        )
    ceiling = compat.gcc_max(release)
    if fitting:
        return PairPlan(fitting[0], None, None, ceiling, tuple(reasons))
    return PairPlan(None, fit[0], None, ceiling, tuple(reasons))


def _problem(reasons: Sequence[str], problem: str, hint: str) -> PairPlan:
    return PairPlan(None, None, None, None, tuple(reasons), problem, hint)


def _passed_over(described: str, problem: str, why: str) -> str:
    # what cannot be used at all says so in its own description
    return f"passed over {described}" + ("" if problem else f": {why}")


def _span(profile: Profile) -> str:
    low, high = profile.toolkit_min, profile.toolkit_max
    return low if low == high else f"between {low} and {high}"


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
