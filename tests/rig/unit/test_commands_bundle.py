# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``bundle``: whatever is broken, only a slip of what was typed is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rig.support.command_desk import Desk
from tests.rig.support.command_desk import desk as desk
from tests.rig.support.places import MOUNT
from tools.rig.base.errors import UsageError
from tools.rig.host.look import Disk
from tools.rig.steps import bundle, commands


class TestBundle:
    """``bundle``."""

    @pytest.fixture(autouse=True)
    def faked(self, desk: Desk) -> None:
        """Let nothing be gathered, and the disk be looked at without a process."""
        desk.put(bundle, "bundle")
        real = commands.target.need_some_folder
        self.hung = False

        def seen(path: Path, measure_s: float) -> Disk:
            return Disk(path, path, MOUNT, exists=path.is_dir(), hung=self.hung)

        desk.put(commands.target, "need_some_folder", lambda at: real(at, seen))

    def test_of_a_slip(self, desk: Desk, tmp_path: Path) -> None:
        """A source that is typed and is no folder is wrong usage, as everywhere."""
        for name in (tmp_path / "none", Path(__file__)):
            with pytest.raises(UsageError, match="--source"):
                commands.bundle(desk.console, "", False, source=str(name))

    def test_of_what_is_broken(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder, whatever is in it, a dead disk and a variable are no obstacle."""
        monkeypatch.setenv("ONECAT_SOURCE", "/nonexistent")
        assert commands.bundle(desk.console, "", False).args[1] == {}
        got = commands.bundle(desk.console, "", False, source=str(tmp_path))
        assert got.args[1] == {"source": str(tmp_path)}
        self.hung = True
        got = commands.bundle(desk.console, "", True, source="/dead/disk")
        assert got.args[1] == {"source": "/dead/disk"}

    def test_of_another_user(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What cannot be looked at may be the folder that is meant."""
        real = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: Path(path) != tmp_path and real(path, mode)
        )
        closed = str(tmp_path / "closed")
        got = commands.bundle(desk.console, "", True, source=closed)
        assert got.args[1] == {"source": closed}
