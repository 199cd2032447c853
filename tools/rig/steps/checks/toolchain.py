# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""CUDA toolkits and host compilers: what is here, and which pair fits the profile."""

from __future__ import annotations

from tools.rig.base.errors import RigError
from tools.rig.builds.environment import arch_list
from tools.rig.builds.pair import toolkit_refusal
from tools.rig.host import compat, compilers
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
    data = {
        "toolkits": [
            {
                "root": str(t.root),
                "version": t.version,
                "sms": [t.sms[0], t.sms[-1]] if t.sms else [],
                "origin": t.origin,
                "problem": t.problem,
            }
            for t in found
        ]
    }
    broken = [t for t in found if t.problem]
    detail = "; ".join(t.describe() for t in found)
    if broken:
        named = broken[0].origin
        hint = f"unset {named}" if named.startswith("CUDA_") else ""
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
    family = facts.distribution.family
    package = compat.package("g++", family)
    # bringing one needs what any installed g++ comes with: binutils and C headers
    any_gcc = any(c.family == "gcc" and not c.problem for c in facts.compilers)
    bringable = any_gcc and not facts.settings.offline and facts.probes.have_dpkg()
    if bringable:
        return Outcome(
            "warn",
            f"none here suits CUDA {facts.release} (gcc up to {ceiling}); "
            "one will be brought",
            hint="invoke cuda-toolkit",
            workaround=f"g++ up to {ceiling} brought without root",
            data={"compiler": ""},
        )
    versioned = f"g++-{ceiling}" if any_gcc and family == "debian" else package
    return Outcome(
        "fail",
        f"no C++ compiler that CUDA {facts.release} takes (gcc up to {ceiling})",
        hint=f"{_installer(family)} {versioned}",
        data={"compiler": ""},
    )


def _installer(family: str) -> str:
    return "sudo dnf install" if family == "rhel" else "sudo apt-get install"
