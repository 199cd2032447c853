# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Somebody who has built nothing yet, and how a command refuses what he types."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rig.support.workshop import Workshop

BUILD = ("build-sm70",)


@pytest.fixture
def user(tmp_path: Path) -> Workshop:
    """Return somebody with an empty home, who has built nothing yet."""
    return Workshop(tmp_path / "user")


def refused(got: subprocess.CompletedProcess[str], code: int, *words: str) -> list[str]:
    """Check how a command was refused, and return what it said."""
    said = got.stderr
    assert got.returncode == code, f"{got.returncode}\n{said}"
    assert "Traceback" not in said
    for word in words:
        assert word in said, said
    lines = said.strip().splitlines()
    assert any(line.startswith("error: ") for line in lines), said
    assert lines[-1].startswith("hint: ") and len(lines[-1]) > len("hint: "), said
    return lines
