# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds of checkouts that were moved or deleted: none there is in force any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tools.rig.base.console import Console, size
from tools.rig.base.errors import CannotError, InUseError
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations, switch
from tools.rig.builds.generations import Generation, Placed
from tools.rig.builds.placed import places
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult
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
    named = next((Path(one.checkout) for one in known if one.checkout), None)
    if named is None:
        return False
    its = disk(named, measure_s=0)
    if its.exists or its.hung or its.problem:
        return False
    above = disk(named.parent, measure_s=0)
    return above.exists and not (above.hung or above.problem or above.empty)


def prune(
    console: Console,
    root: StateRoot,
    own: str,
    keep: int,
    need_bytes: int,
    users: Users,
    disk: Callable[..., look.Disk] = look.disk,
) -> int:
    """Remove builds of checkouts that are gone; return how many bytes that freed.

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
    freed = 0
    for one in pool:
        if one.id in out and _removed(root, one):
            freed += one.own_bytes or 0
            room = f", {size(one.own_bytes)} freed" if one.own_bytes else ""
            where = f" of {one.checkout}, which is gone" if one.checkout else ""
            console.mark("ok", f"old build {one.id}{where}, removed{room}")
    return freed


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
