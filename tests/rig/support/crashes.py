# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A command's console, a bug of ours, and the reports that are saved of bugs."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tools.rig.base import report
from tools.rig.base.console import Console


@pytest.fixture
def screen() -> io.StringIO:
    """Return what people see."""
    return io.StringIO()


@pytest.fixture
def console(screen: io.StringIO) -> Console:
    """Return a console on that screen."""
    return Console(screen, {})


def crash(console: Console) -> None:
    """Stand for a bug of ours."""
    raise ZeroDivisionError("HF_TOKEN=abc broke")


def reports() -> list[Path]:
    """Return the saved reports of crashes."""
    return sorted(report.crash_folder(os.environ).glob("*"))
