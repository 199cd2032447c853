# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Python, the programs around it, and the torch wheel."""

from __future__ import annotations

import regex as re
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from tools.rig.base.errors import CannotError
from tools.rig.builds import interpreter
from tools.rig.host import compat
from tools.rig.host.programs import Program
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

_CMAKE_WHEEL = re.compile(r"""["']cmake\s*>=\s*([\d.]+)""")
_CMAKE_MINIMUM = re.compile(r"cmake_minimum_required\s*\(\s*VERSION\s+([\d.]+)", re.I)
_PATCHING = ("cmake/external_projects/vllm_flash_attn.cmake", "CMakeLists.txt")


@check("python", "Python for the environment", source="the interpreters themselves")
def python(facts: Facts) -> Outcome:
    """Say which Python the environment would get, as the build decides it."""
    seen = facts.survey
    data = {"wanted": seen.wanted}
    ready = [c for c in seen.candidates[:1] if c.venv == "ready"]
    if ready:
        return Outcome(
            "ok", f"the environment is there and has {ready[0].version}", data=data
        )
    wish = interpreter.Wish(
        version=seen.wanted,
        by_user=seen.wanted_by_user,
        named=seen.named,
        requires=seen.requires_python,
        need_headers=seen.need_headers,
        offline=seen.offline,
    )
    try:
        choice = interpreter.decide(wish, seen.pythons)
    except CannotError as exc:
        return Outcome("fail", exc.what, hint=exc.hint, data=data)
    if choice.download:
        return Outcome(
            "warn",
            f"{choice.why}: {choice}",
            hint=f"uv python install {choice.download}",
            workaround=f"Python {choice.download} through uv",
            data=data,
        )
    assert choice.installed is not None
    release = ".".join(map(str, choice.installed.release))
    data["release"] = release
    if choice.why:
        return Outcome(
            "warn",
            f"{choice.why}: {choice} will do",
            workaround=f"Python {release} instead of {seen.wanted}",
            data=data,
        )
    return Outcome("ok", str(choice), data=data)


@check("uv", "uv", source="uv --version")
def uv(facts: Facts) -> Outcome:
    """See that uv is here; the bootstrap brings it as a wheel."""
    return _needed(facts.program("uv"), "uv", "python3 -m pip install uv")


@check("git", "git", source="git --version")
def git(facts: Facts) -> Outcome:
    """See that git is here: version numbers and sources come through it."""
    package = compat.package("git", facts.distribution.family)
    here = facts.program("git")
    if here and here.problem.startswith("does not run"):
        # mostly a broken line of its configuration, which stops every build
        return Outcome(
            "fail",
            f"{here.path} {here.problem}",
            hint="git config --list",
            data={"version": ""},
        )
    return _needed(here, "git", f"install the package {package}")


@check("cmake", "CMake", source="cmake --version; the target's pyproject.toml")
def cmake(facts: Facts) -> Outcome:
    """Compare CMake with what the target asks for."""
    asked = _CMAKE_WHEEL.findall(facts.text("pyproject.toml"))
    asked += _CMAKE_MINIMUM.findall(facts.text("CMakeLists.txt"))
    least = max(asked, key=compat.version, default="")
    here = facts.program("cmake")
    return _from_wheel(facts, here, "cmake", least)


@check("ninja", "ninja", source="ninja --version")
def ninja(facts: Facts) -> Outcome:
    """See that ninja is here or comes as a wheel."""
    return _from_wheel(facts, facts.program("ninja"), "ninja", "")


@check("patch", "patch", source="patch --version; the target's CMake files")
def patch(facts: Facts) -> Outcome:
    """See that patch is here when the target patches sources that it fetches."""
    here = facts.program("patch")
    if here:
        return _needed(here, "patch", "")
    if facts.absent and not facts.is_sample:
        package = compat.package("patch", facts.distribution.family)
        return Outcome(
            "unknown",
            "not here, and without a checkout nothing says whether it is needed",
            hint=f"install the package {package}",
            data={"version": ""},
        )
    patches = any("PATCH_COMMAND" in facts.text(f) for f in _PATCHING)
    if not patches or facts.env.get("VLLM_FLASH_ATTN_SRC_DIR"):
        return Outcome("skip", "not here, and this target does not need it")
    package = compat.package("patch", facts.distribution.family)
    return Outcome(
        "fail",
        "patch is not installed, and the target patches sources that it fetches",
        hint=f"install the package {package}",
        data={"version": ""},
    )


@check("cache", "compile cache", source="ccache --version, sccache --version")
def cache(facts: Facts) -> Outcome:
    """See whether a second build can reuse the objects of the first."""
    here = [p for name in ("sccache", "ccache") if (p := facts.program(name))]
    usable = [p for p in here if not p.problem]
    data = {p.name: p.version for p in usable}
    if usable:
        words = ", ".join(f"{p.name} {p.version}" for p in usable)
        return Outcome("ok", words, data=data)
    detail = "; ".join(f"{p.path} {p.problem}" for p in here)
    package = compat.package("ccache", facts.distribution.family)
    return Outcome(
        "warn",
        detail or "neither ccache nor sccache: a build that fails starts from nothing",
        hint=f"install the package {package}",
        data=data,
    )


@check("torch", "torch wheel for this card", source="compatibility.json B1")
def torch(facts: Facts) -> Outcome:
    """See that the torch wheel of the profile holds code for its architecture."""
    profile = facts.profile
    if not profile.torch or not profile.torch_variant:
        return Outcome("skip", "the profile needs no torch")
    wheel = f"torch {profile.torch} ({profile.torch_variant})"
    data = {"torch": profile.torch, "variant": profile.torch_variant}
    for sm in profile.sms:
        holds = compat.torch_has_sm(profile.torch, profile.torch_variant, sm)
        if holds is None:
            return Outcome("unknown", f"no facts about {wheel} and sm_{sm}", data=data)
        if not holds:
            good = ", ".join(compat.torch_variants_with(profile.torch, sm))
            return Outcome(
                "fail",
                f"{wheel} holds no code for sm_{sm}"
                + (f"; {good} does" if good else "; no variant of it does"),
                hint="choose another profile with --profile",
                data=data,
            )
    if facts.env.get("UV_TORCH_BACKEND") == "auto":
        return Outcome(
            "warn",
            "UV_TORCH_BACKEND=auto looks at the driver only, and picks a wheel without "
            f"code for this card; {profile.torch_variant} is the one",
            hint="unset UV_TORCH_BACKEND",
            data=data,
        )
    sms = ", ".join(f"sm_{sm}" for sm in profile.sms)
    return Outcome("ok", f"{wheel} holds code for {sms}", data=data)


def _needed(here: Program | None, name: str, hint: str) -> Outcome:
    if here is None:
        return Outcome(
            "fail", f"{name} is not installed", hint=hint, data={"version": ""}
        )
    if here.problem:
        return Outcome("unknown", f"{here.path} {here.problem}", data={"version": ""})
    return Outcome(
        "ok", f"{here.version} ({here.path})", data={"version": here.version}
    )


def _from_wheel(facts: Facts, here: Program | None, name: str, least: str) -> Outcome:
    """Judge a program that comes as a wheel with the build requirements, too."""
    asked = f">= {least}" if least else "any version"
    data = {"version": here.version if here else "", "asked": least}
    if here and not here.problem and _at_least(here.version, least):
        return Outcome("ok", f"{here.version} ({here.path}), asked: {asked}", data=data)
    if here is None:
        what = "not here"
    elif here.problem:
        what = f"{here.path} {here.problem}"
    else:
        what = f"{here.version} ({here.path}) is too old, asked: {asked}"
    if facts.settings.offline:
        return Outcome(
            "warn",
            f"{what}; offline, the wheel must already be in uv's cache",
            hint=f"install {name} {'' if not least else asked}".rstrip(),
            data=data,
        )
    return Outcome("ok", f"{what}; it comes as a wheel with the build", data=data)


def _at_least(version: str, least: str) -> bool:
    if not least:
        return True
    try:
        return SpecifierSet(f">={least}").contains(version)
    except (InvalidSpecifier, InvalidVersion):
        return False
