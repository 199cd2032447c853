# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The environment that a build ends in: made beside the one in force, at its own place.

Nothing that is in force is touched here. What fails is taken away again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import RigError
from tools.rig.builds import carried, generations, overlay, switch, wheel
from tools.rig.builds.generations import Generation
from tools.rig.builds.profile import Profile
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.scene import Scene


@contextlib.contextmanager
def new(
    found: Scene, name: str, use: Tools, env: Mapping[str, str]
) -> Iterator[Generation]:
    """Make an empty environment for a build; it goes again when what follows fails.

    Parameters
    ----------
    found
        Whose generation it is.
    name
        The build's id.
    use
        What is asked and started.
    env
        Our environment.

    Raises
    ------
    StepFailed
        When it cannot be made, or what an earlier build left cannot be taken away.
    """
    place = found.environment.name
    generations.sweep(found.root, place)
    folder = generations.begin(found.root, place, name, " ".join(sys.argv))
    try:
        use.make_venv(found.placing, folder, found.placing.bench / "bin/python", env)
        yield Generation(name, folder, profile=found.profile.name)
    except BaseException:
        # a killed one is swept by the next build; this only gives the space back now
        with contextlib.suppress(RigError):
            generations.remove(found.root, place, name)
        raise


def libraries(
    built: Path, checkout: Path, profile: Profile, use: Tools, env: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the members of a wheel that the build made, and their places.

    Parameters
    ----------
    built
        The wheel.
    checkout
        The source tree that it was built from.
    profile
        Knows which folders lie elsewhere in the checkout.
    """
    moved = profile.overlay_moved
    tracked = set(use.tracked(checkout, env))
    for start, other in moved.items():
        here = [t for t in tracked if t.startswith(other)]
        tracked |= {start + t[len(other) :] for t in here}
    made = wheel.made_files(built, tracked)
    return tuple((member, _where(member, moved)) for member in made)


def known(
    found: Scene,
    built: Path,
    mode: str,
    toolkit: str,
    head: str,
    inspect: Callable[[Path], tuple[str, str]],
    python: str = "",
) -> Generation | None:
    """Return the generation that a new one would be just the same as.

    It may be in force, or wait until it can be. One whose Python went away, as with an
    upgrade of the system, is not the same any more.

    Parameters
    ----------
    built
        The new wheel.
    mode, toolkit, head
        What the new one would be made as, with, and of.
    inspect
        See :func:`tools.rig.builds.survey.inspect`.
    python
        The version that its Python must have, where the wheel fits several.
    """
    wanted = (mode, toolkit, found.profile.name)
    for one in generations.listing(found.root, found.environment.name, sizes_s=0):
        same = one.complete and (one.mode, one.toolkit, one.profile) == wanted
        if not same or not wheel.same(Path(one.wheel), built):
            continue
        if mode == "editable" and one.head != head:
            continue
        # libraries may have been removed from the checkout, or put there by hand
        placed = ((m, found.checkout / path) for m, path in one.libraries)
        whole = not one.active or (
            one.verified and all(wheel.holds(built, m, file) for m, file in placed)
        )
        state, version = inspect(one.folder) if whole else ("", "")
        if state == "ready" and python in ("", version):
            return one
    return None


def carry(
    console: Console,
    found: Scene,
    to: Generation,
    install: Callable[[Path, Sequence[str]], None],
    packages: Callable[[Path], Mapping[str, str]],
) -> None:
    """Take what was added by hand to the overlay in force into the new one.

    What cannot be had any more is told; no build fails for it.
    """
    now = switch.active(found.root, found.environment.name)
    if now is None or now.mode != "editable":
        return
    before, have = packages(now.python), packages(to.python)
    extra = carried.missing(before, have, found.profile.project)
    if extra:
        try:
            install(to.folder, ["--no-deps", *extra])
            console.say(f"  taken along: {', '.join(extra)}")
        except RigError as exc:
            console.mark("warn", f"not taken along: {', '.join(extra)} ({exc.what})")


def put_on_path(one: Generation, checkout: Path, profile: Profile) -> None:
    """Let an editable environment find the parts that its own finder does not map."""
    site = next((one.folder / "lib").glob("python3*/site-packages"))
    folders = [checkout / folder for folder in profile.overlay_paths]
    overlay.put_on_path(site, profile.project, folders)


def _where(member: str, moved: Mapping[str, str]) -> str:
    for start, other in moved.items():
        if member.startswith(start):
            return other + member[len(start) :]
    return member
