# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where a build happens when nothing is checked out: below the state root.

The folder that the suite lies in may be read-only or somebody else's then; a build
never writes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tools.rig.base.errors import CannotError
from tools.rig.base.state import place_id
from tools.rig.builds import place
from tools.rig.builds.place import PlaceFacts
from tools.rig.host.look import Link
from tools.rig.steps.scene import SAMPLE

Look = Callable[[Path, Path], PlaceFacts]
"""Looks at a checkout with a state root that is named."""


def below_root(seen: PlaceFacts, need_bytes: int, look: Look | None) -> PlaceFacts:
    """Return the facts with the checkout where it will lie, as the build has it.

    Parameters
    ----------
    seen
        What was found from the folder of the suite.
    need_bytes
        Bytes that the environment and its caches take.
    look
        Asked where the sample is laid out already; None when it is not the target.
    """
    try:
        *others, best = [v.candidate for v in place.choose(seen, need_bytes)]
    except CannotError:
        # the check of the place tells each reason; the other checks go on
        *others, best = seen.candidates
    path = checkout_below(best.root)
    checkout = replace(
        seen.checkout,
        path=path,
        real=path,
        place=place_id(path),
        owner=seen.uid,
        writable=True,
        link=Link("absent"),
    )
    venv, version = "absent", ""
    if look and not best.disk.hung and path.is_dir():
        there = look(path, best.root)
        checkout, made = there.checkout, there.candidates[0]
        venv, version = made.venv, made.version
    return replace(
        seen,
        checkout=checkout,
        checkout_disk=best.disk,
        candidates=(*others, replace(best, venv=venv, version=version)),
    )


def checkout_below(root: Path) -> Path:
    """Return where the sample lies below a state root, once it is laid out."""
    return root / SAMPLE / "rig-sample"
