# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The environment that a checkout's own ``.venv`` points to, when it is one of ours.

``install-wheel`` makes one for a checkout that holds no target, so looking only at the
target's would miss it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import profile as profiles
from tools.rig.builds import record
from tools.rig.builds.profile import Profile
from tools.rig.host import look
from tools.rig.host.look import Checkout


@dataclass(frozen=True)
class Linked:
    """An environment of ours and the checkout whose ``.venv`` points there."""

    environment: Path
    checkout: Path

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
    real = Path(link.real)
    if link.kind != "link" or not link.exists or real.parent.name != "venvs":
        return None
    marks = (real / SENTINEL, real.parent / SENTINEL)
    ours = any(mark.is_file() for mark in marks)
    return Linked(real, its.real) if ours else None
