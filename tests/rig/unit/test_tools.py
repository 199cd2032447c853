# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Programs that come as wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.support.fakecuda import program
from tools.rig.base.errors import CannotError
from tools.rig.builds.tools import uv_command


def test_beside_our_python(tmp_path: Path) -> None:
    """The wheel in our own environment comes first."""
    beside = program(tmp_path / "venv" / "bin" / "uv")
    program(tmp_path / "path" / "uv")
    python = str(tmp_path / "venv" / "bin" / "python")
    assert uv_command(python, str(tmp_path / "path")) == [str(beside)]


def test_on_path(tmp_path: Path) -> None:
    """Else the one on PATH."""
    found = program(tmp_path / "path" / "uv")
    python = str(tmp_path / "venv" / "bin" / "python")
    assert uv_command(python, str(tmp_path / "path")) == [str(found)]


def test_nowhere(tmp_path: Path) -> None:
    """Without either the command that brings it is named."""
    python = str(tmp_path / "python")
    with pytest.raises(CannotError, match="uv is not installed") as caught:
        uv_command(python, str(tmp_path))
    assert caught.value.hint == f"{python} -m pip install uv"
