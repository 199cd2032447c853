# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Profiles: what one target needs on one kind of card, as data files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent.parent / "profiles"


@dataclass(frozen=True)
class Profile:
    """One target on one kind of card; fields are those of the data file.

    ``sms`` are the architectures that every CUDA library must hold (70 means sm_70),
    ``libraries`` what a good build leaves behind (glob patterns, alternatives divided
    by ``|``), ``gib_per_job`` the memory in GiB that one compile may take,
    ``need_gib`` the disk space in GiB for the environment, ``overlay_paths`` folders in
    the checkout that an editable install must put on ``sys.path`` beside its own,
    ``subprojects`` folders in it that the target builds as projects of their own,
    ``overlay_moved`` folders whose place in the checkout is another than in the wheel.
    """

    name: str
    description: str
    project: str
    modules: tuple[str, ...]
    libraries: tuple[str, ...]
    no_device_code: tuple[str, ...]
    build_requirements: str
    toolkit_min: str
    toolkit_max: str
    toolkit_parts: str
    cxx: int
    arch_list: str
    sms: tuple[int, ...]
    python: str
    python_admits: str
    torch: str | None
    torch_variant: str | None
    gib_per_job: int
    need_gib: int
    editable_env: Mapping[str, str]
    overlay_paths: tuple[str, ...]
    overlay_moved: Mapping[str, str]
    subprojects: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def names() -> list[str]:
    """Return the names of all profiles."""
    return sorted(p.stem for p in FOLDER.glob("*.toml"))


def load(name: str) -> Profile:
    """Read a profile.

    Raises
    ------
    UsageError
        When there is none of that name.
    """
    file = FOLDER / f"{name}.toml"
    if name not in names():
        known = ", ".join(names())
        raise UsageError(f"unknown profile {name!r}", hint=f"choose one of {known}")
    with file.open("rb") as fh:
        data: dict[str, Any] = tomllib.load(fh)
    target, chain, torch = data["target"], data["toolchain"], data.get("torch", {})
    build = data["build"]
    return Profile(
        name=name,
        description=data["description"],
        project=target["project"],
        modules=tuple(target["modules"]),
        libraries=tuple(target["libraries"]),
        no_device_code=tuple(target["no_device_code"]),
        build_requirements=target["build_requirements"],
        toolkit_min=chain["toolkit_min"],
        toolkit_max=chain["toolkit_max"],
        toolkit_parts=chain["toolkit_parts"],
        cxx=chain["cxx"],
        arch_list=data["arch"]["list"],
        sms=tuple(data["arch"]["sms"]),
        python=data["python"]["version"],
        python_admits=data["python"]["admits"],
        torch=torch.get("version"),
        torch_variant=torch.get("variant"),
        gib_per_job=build["gib_per_job"],
        need_gib=build["need_gib"],
        editable_env=dict(build["editable_env"]),
        overlay_paths=tuple(build["overlay_paths"]),
        overlay_moved=dict(build.get("overlay_moved", {})),
        subprojects=tuple(build.get("subprojects", ())),
        env=dict(data.get("env", {})),
    )


def of_project(project: str) -> Profile | None:
    """Return the first profile for a project's name, the default card first."""
    order = sorted(names(), key=lambda n: (n != "v100-cu128", n))
    for name in order:
        profile = load(name)
        if profile.project == project:
            return profile
    return None


def on_sample(profile: Profile) -> Profile:
    """Return the sample's profile with the toolchain and cards of `profile`.

    Where the real target is not at hand, this proves toolkit, compiler and architecture
    on the miniature; only the compiler part of the toolkit is then needed.
    """
    return replace(
        load("sample"),
        name=profile.name,
        description=f"{profile.description}; on the bundled sample",
        toolkit_min=profile.toolkit_min,
        toolkit_max=profile.toolkit_max,
        arch_list=profile.arch_list,
        sms=profile.sms,
    )
