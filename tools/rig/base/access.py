# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Folders of other users, on the way to what we look for, that are closed to us.

To most questions the system answers for what lies in them as if it were not there.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from tools.rig.base.errors import CannotError

OWNER = "run it as {owner}, or name a folder of yours with ONECAT_LOCAL_ROOT"


def closed(path: Path) -> Path | None:
    """Return the first folder on the way to a path that may not be entered.

    Parameters
    ----------
    path
        Links in it are followed as far as that is possible.
    """
    for folder in reversed(Path(os.path.realpath(path)).parents):
        if not os.access(folder, os.X_OK):
            return folder if os.path.isdir(folder) else None
    return None


def need_open(path: Path, hint: str = OWNER) -> None:
    """Refuse to speak of a path that nobody but another user can see.

    Parameters
    ----------
    hint
        What to do, with ``{owner}`` in it for who that is.

    Raises
    ------
    CannotError
        When a folder on the way to it is closed to us.
    """
    folder = closed(path)
    if folder is None:
        return
    owner = _owner(folder)
    raise CannotError(
        f"{path} cannot be looked at: {folder} belongs to {owner} and is closed to you",
        usual="Another user has made it; whether it is there cannot be told.",
        hint=hint.format(owner=owner),
    )


def _owner(folder: Path) -> str:
    number = folder.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"
