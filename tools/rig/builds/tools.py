# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Programs that come as wheels in the environment of the task tools."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.rig.base.errors import CannotError


def uv_command() -> list[str]:
    """Return how uv is started: the wheel beside our own Python, else the one on PATH.

    Raises
    ------
    CannotError
        When there is neither.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise CannotError(
            "uv is not installed",
            usual="The bootstrap tools/nox brings it; a hand-made environment may not.",
            hint=f"{sys.executable} -m pip install uv",
        )
    return [found]
