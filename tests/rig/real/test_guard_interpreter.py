# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan against a real Python of the environment, however it was started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig.support.guarded import WAIT, Start, found
from tests.rig.support.guarded import base as base
from tests.rig.support.guarded import start as start
from tests.rig.support.places import PLACE, Town
from tools.rig.builds import generations, switch
from tools.rig.guard.scan import scan
from tools.rig.guard.targets import Targets

pytestmark = pytest.mark.real


class TestInterpreter:
    """A Python of the environment maps nothing of it and still counts."""

    @pytest.fixture
    def real(self, base: Path) -> Path:
        """Give a real environment."""
        folder = base / "real"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", folder], check=True
        )
        return folder

    def test_article(self, real: Path, start: Start) -> None:
        """The sleeping Python of the article is a user, named with its command."""
        pid = start([real / "bin/python", "-c", WAIT])
        user = found(real, pid)
        assert user is not None
        assert user.maps == ()
        assert user.command == f"{real}/bin/python -c {WAIT}"

    def test_through_the_link(self, base: Path, real: Path, start: Start) -> None:
        """It counts when it was started through a link that we are not told about."""
        (base / "signpost").symlink_to(real)
        pid = start([base / "signpost/bin/python", "-c", WAIT])
        assert found(real, pid) is not None

    def test_from_the_path(self, real: Path, start: Start) -> None:
        """It counts when it was found on the PATH, also without VIRTUAL_ENV."""
        path = f"{real}/bin:{os.environ['PATH']}"
        pid = start(
            ["python", "-c", WAIT], executable=real / "bin/python", env={"PATH": path}
        )
        assert found(real, pid) is not None

    def test_relative(self, real: Path, start: Start) -> None:
        """It counts when it was started by a relative path."""
        pid = start(["bin/python", "-c", WAIT], cwd=real)
        user = found(real, pid)
        assert user is not None
        assert "was started as bin/python" in user.why
        assert f"works in {real}" in user.why

    def test_virtual_env(self, real: Path, start: Start) -> None:
        """A Python with VIRTUAL_ENV counts, unless another environment started it."""
        base_python = os.path.realpath(sys.executable)
        env = {"VIRTUAL_ENV": str(real)}
        assert found(real, start([base_python, "-c", WAIT], env=env)) is not None
        second = real.parent / "second"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", second], check=True
        )
        pid = start([second / "bin/python", "-c", WAIT], env=env)
        assert found(real, pid) is None
        assert found(second, pid) is not None

    def test_copied_interpreter(self, base: Path, start: Start) -> None:
        """An environment with a copy of the interpreter is seen by its program."""
        folder = base / "copied"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", "--copies", folder],
            check=True,
        )
        pid = start([folder / "bin/python", "-c", WAIT])
        user = found(folder, pid)
        assert user is not None
        assert any(name.startswith("bin/python") for name in user.maps)


def test_started_by_the_link_before_a_switch(tmp_path: Path) -> None:
    """A process belongs to what the link led to when it was started."""
    town = Town(tmp_path)
    code = "print(1, flush=True); import time; time.sleep(600)"
    argv = [str(town.link / "bin/python"), "-S", "-c", code]

    def generation(name: str) -> Path:
        folder = town.generation(name).folder
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to(sys.executable)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        switch.switch(town.root, PLACE, generations.read(folder))
        # who is started in the moment of a switch counts for both
        time.sleep(1.2)
        return folder

    def users(venv: Path) -> list[int]:
        return [user.pid for user in scan(Targets.of(venv)).users]

    with contextlib.ExitStack() as stack:
        folders, pids = [], []
        for name in ("1", "2", "3"):
            folders.append(generation(name))
            proc = stack.enter_context(
                subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(proc.kill)
            assert proc.stdout is not None and proc.stdout.readline() == "1\n"
            pids.append(proc.pid)
        assert [users(folder) for folder in folders] == [[pid] for pid in pids]
        assert users(town.link) == pids[2:]
