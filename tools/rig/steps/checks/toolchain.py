# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""CUDA toolkits and host compilers: what is here, and which pair fits the profile."""

from __future__ import annotations

from tools.rig.base.errors import RigError, UsageError
from tools.rig.builds import compiler_kit, toolkit_kit
from tools.rig.builds.environment import arch_list
from tools.rig.builds.pair import toolkit_refusal
from tools.rig.host import compat, compilers
from tools.rig.host.cuda import Toolkit
from tools.rig.steps import nvcc_flags
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check
from tools.rig.steps.toolkit import check_user_settings

_VARIABLES = (
    "CUDA_HOME",
    "NVCC_CCBIN",
    "CUDAHOSTCXX",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "TORCH_CUDA_ARCH_LIST",
)


@check("settings", "toolchain variables", source="what a build itself refuses")
def settings(facts: Facts) -> Outcome:
    """See that a build would not refuse what the user's own variables name."""
    given = [name for name in _VARIABLES if facts.env.get(name)]
    data = {"set": given}
    refused = []
    for ask in (
        lambda: check_user_settings(facts.env),
        lambda: arch_list(facts.env, facts.profile),
    ):
        try:
            ask()
        except RigError as exc:
            refused.append(exc)
    if refused:
        detail = "; ".join(exc.what for exc in refused)
        return Outcome("fail", detail, hint=refused[0].hint, data=data)
    return Outcome("ok", ", ".join(given) or "none set", data=data)


@check(
    "toolkits",
    "CUDA toolkits here",
    source="nvcc --version, --list-gpu-code",
    limit_s=60,
)
def toolkits(facts: Facts) -> Outcome:
    """List every toolkit with the architectures that it can emit."""
    found = facts.toolkits
    if not found:
        return Outcome("ok", "none", data={"toolkits": []})
    judged = [(t, t.problem or _damage(t)) for t in found]
    data = {
        "toolkits": [
            {
                "root": str(t.root),
                "version": t.version,
                "sms": [t.sms[0], t.sms[-1]] if t.sms else [],
                "origin": t.origin,
                "problem": problem,
            }
            for t, problem in judged
        ]
    }
    broken = [t for t, problem in judged if problem]
    detail = "; ".join(
        t.describe() + ("" if t.problem or not problem else f", {problem}")
        for t, problem in judged
    )
    if broken:
        named = broken[0].origin
        hint = f"unset {named}" if named.startswith("CUDA_") else ""
        if named == "provisioned":
            hint = "invoke cuda-toolkit"
        return Outcome("warn", detail, hint=hint, data=data)
    return Outcome("ok", detail, data=data)


@check(
    "toolkit",
    "CUDA toolkit for this profile",
    source="nvcc --list-gpu-code; compatibility.json A1",
    limit_s=60,
)
def toolkit(facts: Facts) -> Outcome:
    """Say which toolkit a build would use, or which one would be brought."""
    plan, profile = facts.pair, facts.profile
    reasons = [
        f"{t.root}: {why}"
        for t in facts.toolkits
        if (why := toolkit_refusal(t, profile))
    ]
    data = {"release": facts.release, "brought": bool(plan.recipe)}
    if plan.problem:
        return Outcome("fail", plan.problem, hint=plan.hint, data=data)
    try:
        nvcc_flags.check_plan(plan, facts.toolkits, facts.env)
    except UsageError as exc:
        return Outcome("fail", exc.what, hint=exc.hint, data=data)
    if plan.toolkit:
        return Outcome("ok", plan.toolkit.describe(), data=data)
    assert plan.recipe is not None
    here = f" ({'; '.join(reasons)})" if reasons else " (no toolkit is here)"
    return Outcome(
        "warn",
        f"CUDA {plan.recipe.release} will be brought from {plan.recipe.distribution} "
        f"{plan.recipe.suite}{here}",
        hint="invoke cuda-toolkit",
        workaround=f"CUDA {plan.recipe.release} brought without root",
        data=data,
    )


@check("compilers", "C++ compilers here", source="their own version macros")
def host_compilers(facts: Facts) -> Outcome:
    """List every host compiler and whether the chosen toolkit takes it."""
    found = facts.compilers
    if not found:
        return Outcome(
            "ok", "none (the next check says what that means)", data={"compilers": []}
        )
    words = []
    for compiler in found:
        why = (
            compilers.refusal(facts.release, compiler, facts.profile.cxx)
            if facts.release
            else compiler.problem
        )
        words.append(compiler.describe() + (f": {why}" if why else ""))
    versions = sorted(f"{c.family} {c.version}" for c in found if not c.problem)
    return Outcome("ok", "; ".join(words), data={"compilers": versions})


@check(
    "compiler",
    "C++ compiler for that toolkit",
    source="crt/host_config.h; compatibility.json A1",
)
def compiler(facts: Facts) -> Outcome:
    """Say which host compiler a build would use, or which one would be brought."""
    plan = facts.pair
    if plan.problem:
        return Outcome("skip", "there is no toolkit to choose a compiler for")
    if plan.compiler:
        return Outcome(
            "ok",
            f"{plan.compiler.describe()} with CUDA {facts.release}",
            data={"compiler": f"{plan.compiler.family} {plan.compiler.version}"},
        )
    ceiling = plan.compiler_max or compat.gcc_max(facts.release)
    assert ceiling is not None
    why, hint = why_no_compiler(facts, ceiling)
    if not why:
        return Outcome(
            "warn",
            f"none here suits CUDA {facts.release} (gcc up to {ceiling}); "
            "one will be brought",
            hint="invoke cuda-toolkit",
            workaround=f"g++ up to {ceiling} brought without root",
            data={"compiler": ""},
        )
    return Outcome(
        "fail",
        f"no C++ compiler that CUDA {facts.release} takes (gcc up to {ceiling}) is "
        f"here, and {why}",
        hint=hint,
        data={"compiler": ""},
    )


def why_no_compiler(facts: Facts, ceiling: int) -> tuple[str, str]:
    """Say why no g++ can be brought, and the hint, in the words of a build."""
    root = facts.state
    return compiler_kit.cannot(
        ceiling,
        # those that were brought lack the parts of an installed one themselves
        [c for c in facts.compilers if not (root and root.path in c.path.parents)],
        facts.distribution,
        offline=facts.settings.offline,
        dpkg=facts.probes.have_dpkg(),
    )


def _damage(toolkit: Toolkit) -> str:
    broken = toolkit_kit.damage(toolkit.root)
    return f"damaged: {broken}" if broken else ""
