# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which generation of a place is in force, and what its last switch noted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed, put_aside
from tools.rig.base.state import StateRoot, read_json
from tools.rig.guard import reigns
from tools.rig.guard.reigns import STATE, Turn


@dataclass(frozen=True)
class Placed:
    """What the last switch noted: the generation before, and the checkout's libraries.

    ``id`` is the editable generation whose libraries lie in the checkout, ``turns`` are
    the switches so far.
    """

    previous: str | None = None
    id: str | None = None
    libraries: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return what :func:`placed` reads."""
        return {
            "previous": self.previous,
            "placed": self.id,
            "libraries": [*self.libraries],
            "turns": reigns.dumped(self.turns),
        }


def folder_of(root: StateRoot, place: str) -> Path:
    """Return where the generations of a place lie."""
    return root.path / "generations" / place


def places(root: StateRoot) -> list[str]:
    """Return the names of the places that builds were made for."""
    try:
        return sorted(p.name for p in root.generations.iterdir() if p.is_dir())
    except FileNotFoundError:
        return []


def active_id(root: StateRoot, place: str) -> str | None:
    """Return which generation the link of a place names; None for none of ours."""
    try:
        target = Path(os.readlink(root.venvs / place))
    except OSError:
        return None
    ours = target.parent == folder_of(root, place)
    return target.name if ours else None


def placed(root: StateRoot, place: str) -> Placed:
    """Return what the last switch of a place noted.

    Raises
    ------
    StepFailed
        When the note cannot be read: without it the previous one is not known, and
        nothing must be deleted.
    """
    file = folder_of(root, place) / STATE
    data = read_json(file)
    if data is None:
        return Placed()
    try:
        libraries = tuple(str(one) for one in data.get("libraries", ()))
        turns = reigns.parsed(data.get("turns", ()))
        return Placed(data.get("previous"), data.get("placed"), libraries, turns)
    except (AttributeError, TypeError, ValueError) as exc:
        raise StepFailed(
            f"{file} is no note of a switch", hint=put_aside(file, ".broken")
        ) from exc
