# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Programs that come as wheels in the environment of the task tools."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.rig.base.errors import CannotError, quoted


def uv_command(python: str = sys.executable, search: str | None = None) -> list[str]:
    """Return how uv is started: the wheel beside our own Python, else the one on PATH.

    Parameters
    ----------
    python
        Our own Python.
    search
        The PATH to look at; ours when None.

    Raises
    ------
    CannotError
        When there is neither.
    """
    beside = Path(python).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv", path=search)
    if not found:
        raise CannotError(
            "uv is not installed",
            usual="The bootstrap tools/nox brings it; a hand-made environment may not.",
            hint=f"{quoted(Path(python))} -m pip install uv",
        )
    return [found]
