# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is built: a checkout that some profile knows, or the bundled sample."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from tools.rig.base import access
from tools.rig.base.config import Settings
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.base.paths import checked_path
from tools.rig.builds import profile as profiles
from tools.rig.builds.profile import Profile
from tools.rig.builds.sample import PROJECT
from tools.rig.host import look

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parents[3]
"""The checkout that this suite lies in."""


@dataclass(frozen=True)
class Target:
    """A checkout to build. ``path`` is None for the sample until it is laid out."""

    path: Path | None
    profile: Profile

    @property
    def is_sample(self) -> bool:
        """Whether this is the bundled miniature."""
        return self.path is None


def project_name(checkout: Path) -> str | None:
    """Return the project's name from pyproject.toml, or None when there is none."""
    try:
        with (checkout / "pyproject.toml").open("rb") as fh:
            data = tomllib.load(fh)
    except (OSError, ValueError):
        # unreadable, no TOML, or no UTF-8
        return None
    project = data.get("project")
    name = project.get("name") if isinstance(project, dict) else None
    return canonicalize_name(name) if isinstance(name, str) else None


def find(settings: Settings, here: Path = HERE, cwd: Path | None = None) -> Target:
    """Return what to build: ``--source``, else where we lie or stand, else the sample.

    Parameters
    ----------
    settings
        ``source`` and ``profile`` are used.
    here
        The checkout that the suite lies in.
    cwd
        Where the user stands; None to leave that out.

    Raises
    ------
    UsageError
        When ``--source`` is no folder or no target that a profile knows, or when the
        profile is for another project.
    """
    asked = profiles.load(settings.profile) if settings.profile else None
    if settings.source is not None:
        place = need_folder(settings.source)
        name = project_name(place)
        if name is None:
            raise UsageError(
                f"{place} is no target: it has no pyproject.toml with a project name",
                hint="git clone the target and pass its folder with --source",
            )
        return Target(place, _profile_for(name, place, asked))
    for place in (here, *(_upward(cwd) if cwd else ())):
        name = project_name(place)
        if name is not None and (asked is None or asked.project == name):
            found = profiles.of_project(name)
            if found is not None and found.project != "rig-sample":
                return Target(checked_path(place), asked or found)
    sample = asked or profiles.load("sample")
    if sample.project != PROJECT:
        # a profile of a real target proves its toolchain on the miniature
        sample = profiles.on_sample(sample)
    return Target(None, sample)


def need_folder(source: Path) -> Path:
    """Return the folder that the user named as the checkout.

    Raises
    ------
    UsageError
        When it is none.
    CannotError
        When it is closed to us.
    """
    place = checked_path(source)
    if not os.path.isdir(place):
        access.need_open(place, "take a checkout that you may read, with --source")
        what = "is no folder" if os.path.exists(place) else "does not exist"
        raise UsageError(
            f"--source {place}: it {what}",
            hint="git clone the target and pass its folder with --source",
        )
    return place


def need_some_folder(source: Path, disk: Callable[..., look.Disk] = look.disk) -> None:
    """Refuse a name that is surely no folder's: not one that cannot be looked at.

    Raises
    ------
    UsageError
        When it is none.
    """
    if not disk(source, measure_s=0).hung:
        # another user's folder may be meant
        with contextlib.suppress(CannotError):
            need_folder(source)


def find_here(settings: Settings) -> Target:
    """Return what to build for a user who stands in the current folder."""
    return find(settings, cwd=Path.cwd())


def _upward(folder: Path) -> tuple[Path, ...]:
    """Return the folder with a pyproject.toml at or above `folder`, if there is one."""
    for place in (folder, *folder.parents):
        if (place / "pyproject.toml").is_file():
            return (place,)
    return ()


def _profile_for(name: str, place: Path, asked: Profile | None) -> Profile:
    if asked is not None:
        if asked.project != name:
            raise UsageError(
                f"profile {asked.name} builds {asked.project}, but {place} is {name}",
                hint="leave --profile out, or choose the folder that belongs to it",
            )
        return asked
    found = profiles.of_project(name)
    if found is None:
        known = ", ".join(sorted({profiles.load(n).project for n in profiles.names()}))
        raise UsageError(
            f"{place} is no target: no profile builds the project {name!r}",
            hint=f"known projects: {known}",
        )
    return found
