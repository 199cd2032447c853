# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What another user has closed is told from what is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.rig.base import access
from tools.rig.base.errors import CannotError


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is closed; root would not notice."""
    folder = tmp_path / "theirs"
    (folder / "deep").mkdir(parents=True)
    real = os.access

    def may(path: str | Path, mode: int) -> bool:
        return Path(path) != folder and real(path, mode)

    monkeypatch.setattr(os, "access", may)
    return folder


def test_closed(theirs: Path, tmp_path: Path) -> None:
    """The folder is found on the way, through links too."""
    assert access.closed(theirs / "deep" / "x") == theirs
    (tmp_path / "link").symlink_to(theirs / "deep")
    assert access.closed(tmp_path / "link" / "bin") == theirs


def test_not_there(tmp_path: Path) -> None:
    """What is not there is not closed, and neither is what is."""
    assert access.closed(tmp_path / "none" / "x" / "y") is None
    assert access.closed(tmp_path) is None
    access.need_open(tmp_path / "none", "")


def test_message(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose it is stands in the message, also where that user has no name here."""
    with pytest.raises(CannotError, match="theirs belongs to .* and is closed") as told:
        access.need_open(theirs / "x", "sudo -u {owner} invoke verify")
    assert told.value.hint.startswith("sudo -u ") and "{" not in told.value.hint

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(access.pwd, "getpwuid", unknown)
    with pytest.raises(CannotError, match=f"belongs to #{os.getuid()} "):
        access.need_open(theirs / "x", "")
