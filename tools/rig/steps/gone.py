# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds of checkouts that were moved or deleted: none there is in force any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tools.rig.base.console import Console, size
from tools.rig.base.errors import CannotError, InUseError, StepFailed, unwritable
from tools.rig.base.state import StateRoot, read_json, remove_made
from tools.rig.builds import generations, switch
from tools.rig.builds.generations import Generation, Placed
from tools.rig.builds.placed import places
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.host import look

Users = Callable[[Sequence[Generation]], Mapping[str, ScanResult]]


def is_gone(known: Sequence[Generation], disk: Callable[..., look.Disk]) -> bool:
    """Say whether the checkout of a place is surely no more.

    A disk that is not mounted leaves an empty folder, and one that hangs tells nothing:
    then it may come back.

    Parameters
    ----------
    known
        The generations of the place.
    disk
        See :func:`tools.rig.host.look.disk`.
    """
    named = next((one.checkout for one in known if one.checkout), "")
    return bool(named) and _is_no_more(Path(named), disk)


def _is_no_more(checkout: Path, disk: Callable[..., look.Disk]) -> bool:
    its = disk(checkout, measure_s=0)
    if its.exists or its.hung or its.problem:
        return False
    above = disk(checkout.parent, measure_s=0)
    return above.exists and not (above.hung or above.problem or above.empty)


def prune(
    console: Console,
    root: StateRoot,
    own: str,
    keep: int,
    need_bytes: int,
    users: Users,
    disk: Callable[..., look.Disk] = look.disk,
) -> None:
    """Remove builds of checkouts that are gone.

    Of all of them together the newest `keep` stay, as long as there is room.

    Parameters
    ----------
    own
        The place of the caller, who sees to it.
    keep, need_bytes
        As for :func:`generations.prune`.
    users
        Who runs from each of some generations.

    Raises
    ------
    StepFailed
        When something of one stays.
    """
    pool: list[Generation] = []
    for place in places(root):
        known = generations.listing(root, place, note=Placed()) if place != own else []
        # what a switch left must be settled first, by a command for that checkout
        settled = not any(file.exists() for file in switch.journals_of(root, place))
        if known and settled and is_gone(known, disk):
            pool += [replace(g, active=False, previous=False) for g in known]
    pool.sort(key=lambda one: one.id, reverse=True)
    asked = generations.prune(pool, keep, need_bytes)
    used = users([g for g in pool if g.id in asked])
    out = generations.prune(pool, keep, need_bytes, (*used,))
    for one in pool:
        if one.id in out and _removed(root, one):
            room = f", {size(one.own_bytes)} freed" if one.own_bytes else ""
            where = f" of {one.checkout}, which is gone" if one.checkout else ""
            console.mark("ok", f"old build {one.id}{where}, removed{room}")


def _removed(root: StateRoot, one: Generation) -> bool:
    place = one.folder.parent.name
    link = root.venvs / place
    try:
        with BuildLock(link, None, "remove old builds"):
            if generations.active_id(root, place) == one.id:
                link.unlink()
            generations.remove(root, place, one.id)
    except (InUseError, CannotError):
        # somebody is at work there after all
        return False
    return True


def clear(
    console: Console,
    root: StateRoot,
    own: str,
    look_at: Callable[[Targets], ScanResult],
    disk: Callable[..., look.Disk] = look.disk,
) -> None:
    """Remove what checkouts that are gone were built in: tools, objects and sources.

    That of the fork is 9 GB. It stays while a build of the checkout does: then it may
    have been moved only for a while.

    Parameters
    ----------
    own
        As for :func:`prune`.
    look_at
        Scans for who runs from an environment.

    Raises
    ------
    StepFailed
        When something of it stays.
    """
    kept = {p for p in places(root) if generations.listing(root, p, note=Placed())}
    for note in sorted(root.places.glob("*.json")):
        place = note.stem
        try:
            checkout = Path((read_json(note) or {})["checkout"])
        except (KeyError, TypeError, StepFailed):
            # without its name nobody knows whether it is there
            continue
        if place == own or place in kept or not _is_no_more(checkout, disk):
            continue
        if look_at(Targets.of(root.benches / place, None)).free:
            _cleared(console, root, note, checkout)


def _cleared(console: Console, root: StateRoot, note: Path, checkout: Path) -> None:
    place = note.stem
    link = root.venvs / place
    folders = [top / place for top in (root.benches, root.work, root.deps)]
    try:
        with BuildLock(link, None, "remove old builds"):
            if link.is_symlink():
                link.unlink()
            for folder in folders:
                remove_made(folder)
            # last: what is broken off is taken up by it
            note.unlink()
    except (InUseError, CannotError):
        # somebody is at work there after all
        return
    except OSError as exc:
        raise unwritable(note, exc) from exc
    console.mark("ok", f"what {checkout} was built in, removed: it is gone")
