# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Old builds go when there are too many of them, or too little room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tools.rig.base.console import Console, size
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, remove_made
from tools.rig.builds import generations, record
from tools.rig.builds.candidates import NEED_AGAIN_BYTES
from tools.rig.builds.generations import Generation
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.host import storage
from tools.rig.steps import gone as elsewhere
from tools.rig.steps.scene import Scene

Look = Callable[[Targets], ScanResult]


def users(
    found: Iterable[Generation], look: Look = gate.look_at
) -> dict[str, ScanResult]:
    """Return who runs from each generation; those that nobody is seen in are left out.

    One that may be in use and cannot be looked into counts as used.
    """
    out = {}
    for one in found:
        seen = look(Targets.of(one.folder, None))
        if not seen.free:
            out[one.id] = seen
    return out


def prune(
    console: Console, found: Scene, look: Look = gate.look_at, spare: str = ""
) -> None:
    """Remove what the settings do not keep, and what builds that failed left.

    The caller holds the lock. Nothing depends on it, so what cannot be removed is a
    warning.

    Parameters
    ----------
    spare
        A build that stays in any case: it waits to be switched on.
    """
    root, place = found.root, found.environment.name
    try:
        for folder in leftovers(root):
            remove_made(folder)
        known = generations.listing(root, place)
        keep = found.settings.keep_builds
        elsewhere.prune(
            console, root, place, keep, _need(root), lambda some: users(some, look)
        )
        elsewhere.clear(console, root, place, look)
        need = _need(root)
        asked = generations.prune(known, keep, need, (spare,))
        in_use = users([g for g in known if g.id in asked], look)
        gone = generations.prune(known, keep, need, (spare, *in_use))
        for one in known:
            if one.id in gone:
                generations.remove(root, place, one.id)
                room = f", {size(one.own_bytes)} freed" if one.own_bytes else ""
                console.mark("ok", f"old build {one.id} removed{room}")
    except StepFailed as exc:
        console.mark("warn", f"old builds stay: {exc.what}")


def _need(root: StateRoot) -> int:
    """Return the bytes that one more build wants and the disk has not."""
    return max(0, NEED_AGAIN_BYTES - storage.free(root.path)[0])


def leftovers(root: StateRoot) -> list[Path]:
    """Return the folders of wheels that builds left which came to no environment.

    A wheel of the fork is 420 MB; only its own build could have gone on with it.
    """
    ended = ("failed", "interrupted", "died")
    names = [str(r["id"]) for r in record.listing(root) if r.get("result") in ended]
    made = {folder.name for folder in root.generations.glob("*/*")}
    return [
        folder
        for folder in (root.artifacts / name for name in names if name not in made)
        if folder.is_dir()
    ]
