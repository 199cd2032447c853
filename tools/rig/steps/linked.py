# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The environment that a checkout's own ``.venv`` points to, when it is one of ours.

``install-wheel`` makes one for a checkout that holds no target, so looking only at the
target's would miss it.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.config import Settings
from tools.rig.base.errors import UsageError
from tools.rig.base.state import SENTINEL, StateRoot, home_of
from tools.rig.builds import generations, record, target
from tools.rig.builds import profile as profiles
from tools.rig.builds.generations import Generation, Placed
from tools.rig.builds.placed import places
from tools.rig.builds.profile import Profile
from tools.rig.builds.target import HERE, Target
from tools.rig.host import look
from tools.rig.host.look import Checkout
from tools.rig.steps.scene import Scene


@dataclass(frozen=True)
class Linked:
    """An environment of ours and the checkout whose ``.venv`` points there.

    It may be gone: a link that dangles still tells where processes were started from.
    """

    environment: Path
    checkout: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.environment / "bin" / "python"

    def profile(self) -> Profile | None:
        """Return what it was made for: as recorded, else by the project in it."""
        root = StateRoot(self.environment.parent.parent)
        for entry in record.listing(root):
            if entry.get("environment") == str(self.environment):
                name = entry.get("profile")
                if name in profiles.names():
                    return profiles.load(str(name))
        for name in profiles.names():
            found = profiles.load(name)
            shape = f"lib/python3*/site-packages/{found.project.replace('-', '_')}-*"
            if any(self.environment.glob(f"{shape}.dist-info")):
                return profiles.of_project(found.project)
        return None


def of(checkout: Path, seen: Checkout | None = None) -> Linked | None:
    """Return the environment of ours that a checkout's ``.venv`` points to.

    Parameters
    ----------
    checkout
        A folder.
    seen
        What is known of it already; it is looked at when None.

    Raises
    ------
    look.Hung
        When its disk does not answer.
    """
    its = look.checkout(checkout) if seen is None else seen
    link = its.link
    real = home_of(Path(link.real))
    if link.kind != "link" or real.parent.name != "venvs":
        return None
    marks = (real / SENTINEL, real.parent / SENTINEL)
    # another user's root may be closed to us
    ours = any(os.path.isfile(mark) for mark in marks)
    return Linked(real, its.real) if ours else None


def of_scene(found: Scene) -> list[Linked]:
    """Return the environments of ours that links of the checkouts point to."""
    looked = [of(found.checkout, found.placing.facts.checkout)]
    if found.settings.source is None and found.checkout != HERE:
        looked.append(of(HERE))
    return [other for other in looked if other is not None]


def with_builds(found: Scene, name: str = "") -> Scene:
    """Return the scene whose builds are meant.

    That is the one that holds the build called `name`; without a name the one that
    ``verify`` and ``in-use`` look at: where only the sample is here, or nothing was
    built in this root, that is where a ``.venv`` leads to.

    Parameters
    ----------
    name
        An id or its beginning; nothing for whichever was in force before.
    """
    if name:
        for place in (found.environment.name, *places(found.root)):
            known = _builds(found.root, place)
            its = next((one for one in known if one.id.startswith(name)), None)
            if its is not None:
                return _elsewhere(found, found.root, place, Path(its.checkout or "/"))
        return found
    if not found.is_sample and _has_builds(found.root, found.environment.name):
        return found
    # the sample may have been built as well, and is not what verify takes
    for other in sorted(of_scene(found), key=lambda one: one.checkout != HERE):
        folder = other.environment
        root = StateRoot(folder.parent.parent)
        # a link may have come along from another checkout
        if not found.is_sample and folder.name != found.environment.name:
            continue
        if _has_builds(root, folder.name) and _meant(found, other):
            return _elsewhere(found, root, folder.name, other.checkout)
    return found


def _meant(found: Scene, other: Linked) -> bool:
    """Say whether an environment is of the project that is asked for, if one is."""
    asked, its = found.settings.profile, other.profile()
    return not asked or its is None or profiles.load(asked).project == its.project


def target_of(settings: Settings) -> Target:
    """Return what is meant by a command that looks at an environment.

    A folder that is named and holds no target may have got one from a wheel.

    Raises
    ------
    UsageError
        See :func:`tools.rig.builds.target.find`.
    """
    try:
        return target.find_here(settings)
    except UsageError:
        if settings.source is None or not os.path.isdir(settings.source):
            raise
        its = of(settings.source)
        profile = None if its is None else its.profile()
        if its is None or profile is None:
            raise
        asked = profiles.load(settings.profile) if settings.profile else profile
        if asked.project != profile.project:
            raise
        return Target(its.checkout, asked)


def _has_builds(root: StateRoot, place: str) -> bool:
    return bool(_builds(root, place))


def _builds(root: StateRoot, place: str) -> list[Generation]:
    # another place's broken note is no reason to refuse this one
    return generations.listing(root, place, sizes_s=0, note=Placed())


def _elsewhere(found: Scene, root: StateRoot, place: str, checkout: Path) -> Scene:
    if place == found.environment.name and root.path == found.root.path:
        return found
    environment = root.venvs / place
    return dataclasses.replace(
        found, environment=environment, checkout=checkout, root=root
    )


def to_prove(found: Scene) -> tuple[Path, Profile, Path | None] | None:
    """Return the environment to look at instead of the scene's own.

    With it come its profile and, where its libraries may lie in one, its checkout.
    """
    if found.is_sample and found.settings.source is None:
        other = of(HERE)
        its = None if other is None else _asked(found, other)
        if other is not None and its is not None and os.path.exists(other.environment):
            return other.environment, its, None
    if os.path.exists(found.python):
        return None
    # the root in force is another than the one in which it was made
    other = of(found.checkout, found.placing.facts.checkout)
    if other is None or not os.path.exists(other.python):
        return None
    return other.environment, found.profile, found.checkout


def _asked(found: Scene, other: Linked) -> Profile | None:
    """Return the profile of an environment, when it is the one that is asked for."""
    its = other.profile()
    if other.environment == found.environment or its is None:
        return None
    if found.settings.profile is None:
        return its
    asked = profiles.load(found.settings.profile)
    return asked if its.project == asked.project else None
