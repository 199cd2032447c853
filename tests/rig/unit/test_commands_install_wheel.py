# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``install-wheel``: a file's name chooses the profile, and no other file is taken."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.command_desk import Desk
from tests.rig.support.command_desk import desk as desk
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds.target import HERE
from tools.rig.steps import commands, from_wheel


class TestInstallWheel:
    """``install-wheel FILE``."""

    NAME = "1cat_vllm-1.0-cp38-abi3-linux_x86_64.whl"

    def test_here(self, desk: Desk, tmp_path: Path) -> None:
        """The file's name chooses the profile; the environment is this checkout's."""
        seen: list[Any] = []

        def at(settings: Any, checkout: Path, profile: Any) -> Any:
            seen.extend([checkout, profile.name])
            return desk.at

        desk.put(commands.scenes, "at", at)
        desk.put(from_wheel, "install")
        file = tmp_path / self.NAME
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        got = commands.install_wheel(desk.console, str(file), False)
        assert seen == [HERE, "v100-cu128"]
        assert got.args == (desk.console, desk.at, file)

    @pytest.mark.parametrize("name", ["a\nb.whl", "no-wheel.txt", ""])
    def test_refused(self, desk: Desk, name: str) -> None:
        """A name that is no wheel's is refused before anything is looked at."""
        with pytest.raises(UsageError):
            commands.install_wheel(desk.console, name, False)

    def test_another_system(self, desk: Desk, tmp_path: Path) -> None:
        """What no Python here can load is refused before anything is made."""
        file = tmp_path / "1cat_vllm-1-cp312-cp312-win_amd64.whl"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        with pytest.raises(CannotError, match="another system"):
            commands.install_wheel(desk.console, str(file), False)

    def test_no_checkout(self, desk: Desk, tmp_path: Path) -> None:
        """A checkout that is named and not there is wrong usage."""
        file = tmp_path / self.NAME
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        source = str(tmp_path / "none")
        with pytest.raises(UsageError, match="--source .*: it does not exist"):
            commands.install_wheel(desk.console, str(file), False, source=source)
