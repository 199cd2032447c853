# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Folders of the checkout beside the target's own finder."""

from __future__ import annotations

from pathlib import Path

from tools.rig.builds import overlay


def test_pth(tmp_path: Path) -> None:
    """One line a folder; without folders the file goes."""
    overlay.put_on_path(tmp_path, "proj", [Path("/a b"), Path("/c")])
    assert (tmp_path / "rig-overlay-proj.pth").read_text() == "/a b\n/c\n"
    overlay.put_on_path(tmp_path, "proj", [])
    assert list(tmp_path.iterdir()) == []


def test_nothing(tmp_path: Path) -> None:
    """No folder, no file."""
    overlay.put_on_path(tmp_path, "proj", [])
    assert list(tmp_path.iterdir()) == []
