# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""venv-local and what may stand at ``.venv``: nothing there is replaced."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.rig.support import disks
from tests.rig.support.venv_stage import Stage, works
from tests.rig.support.venv_stage import stage as stage

pytestmark = pytest.mark.real


class TestLinkStates:
    """What may stand at ``.venv``, and that it is never replaced."""

    def test_a_folder(self, stage: Stage) -> None:
        """An environment of the user's own stays; ours is used by its real path."""
        own = stage.checkout / ".venv"
        own.mkdir()
        (own / "pyvenv.cfg").write_text("mine")
        got = stage.run()
        assert got.environment.link is None and works(got.environment.path)
        assert (own / "pyvenv.cfg").read_text() == "mine"
        assert ".venv is a directory of yours" in stage.said
        assert "hint: mv " in stage.said

    def test_a_file(self, stage: Stage) -> None:
        """A file of that name stays."""
        (stage.checkout / ".venv").write_text("note")
        got = stage.run()
        assert got.environment.link is None
        assert (stage.checkout / ".venv").read_text() == "note"

    @pytest.mark.parametrize("there", [True, False], ids=["there", "dangling"])
    def test_a_link_to_somewhere_else(self, stage: Stage, there: bool) -> None:
        """A link of the user's own stays, also when its target is gone."""
        other = stage.tmp / "other"
        if there:
            other.mkdir()
        (stage.checkout / ".venv").symlink_to(other)
        got = stage.run()
        assert got.environment.link is None and works(got.environment.path)
        assert os.readlink(stage.checkout / ".venv") == str(other)
        assert f"points to {other}" in stage.said
        assert other.exists() == there

    def test_a_loop(self, stage: Stage) -> None:
        """A link to itself is a link to somewhere else."""
        (stage.checkout / ".venv").symlink_to(".venv")
        got = stage.run()
        assert got.environment.link is None
        assert os.readlink(stage.checkout / ".venv") == ".venv"

    def test_made_by_another_host(self, stage: Stage) -> None:
        """A dangling link to our own place stays, and its target is made here."""
        first = stage.run(local_root=stage.tmp / "scratch")
        inode = os.lstat(stage.checkout / ".venv").st_ino
        shutil.rmtree(stage.tmp / "scratch")
        shutil.rmtree(stage.env["HOME"])
        os.mkdir(stage.env["HOME"])
        got = stage.run()
        assert got.environment.path == first.environment.path
        assert got.environment.link == stage.checkout / ".venv"
        assert os.lstat(stage.checkout / ".venv").st_ino == inode
        assert works(stage.checkout / ".venv" / ".." / got.environment.path)

    def test_a_copied_checkout(self, stage: Stage) -> None:
        """Our own link came along, and leads to the copy's own environment then."""
        first = stage.run()
        copy = stage.tmp / "copy"
        shutil.copytree(stage.checkout, copy, symlinks=True)
        got = stage.run(copy)
        assert got.environment.path != first.environment.path
        assert os.readlink(copy / ".venv") == str(got.environment.path)
        theirs = os.readlink(stage.checkout / ".venv")
        assert theirs == str(first.environment.path)
        again = stage.run(copy, local_root=stage.tmp / "scratch")
        assert os.readlink(copy / ".venv") == str(again.environment.path)
        assert again.environment.path.is_relative_to(stage.tmp / "scratch")

    def test_a_read_only_checkout(self, stage: Stage) -> None:
        """No link can be made: it is said, and the real path is used."""
        point = stage.tmp / "read only"
        why = disks.refused(disks.read_only(stage.checkout, point))
        if why:
            pytest.skip(f"cannot mount: {why}")
        with disks.read_only(stage.checkout, point):
            got = stage.run(point)
            assert got.environment.link is None and works(got.environment.path)
            assert "cannot be written to, so no .venv is made" in stage.said
