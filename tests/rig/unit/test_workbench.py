# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The folder in which toolkits are put together."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import FileLock
from pytest_subprocess import FakeProcess

from tools.rig.base.errors import InUseError, StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.builds.workbench import publish, refuse_foreign, workbench


def test_gives_and_takes_a_folder(tmp_path: Path) -> None:
    """The folder is empty and ours, and gone afterwards."""
    toolkits = tmp_path / "state" / "toolkits"
    with workbench(toolkits, "cuda-12.4") as work:
        assert work.name == f".cuda-12.4.{os.getpid()}"
        assert [p.name for p in work.iterdir()] == [SENTINEL]
        (work / "tree").mkdir()
    assert [p.name for p in toolkits.iterdir()] == [".lock"]


def test_gone_after_a_failure(tmp_path: Path) -> None:
    """Also when the work fails."""
    with pytest.raises(StepFailed, match="no network"), workbench(tmp_path, "x"):
        raise StepFailed("no network")
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_leftovers_of_killed_runs(tmp_path: Path) -> None:
    """What a killed run left goes; what is not ours, or of another name, stays."""
    for name in (".cuda-12.4.77", ".cuda-12.4-compiler.77", ".cuda-12.4.78"):
        (tmp_path / name / "tree").mkdir(parents=True)
    for name in (".cuda-12.4.77", ".cuda-12.4-compiler.77"):
        (tmp_path / name / SENTINEL).touch()
    (tmp_path / ".cuda-12.4.79").mkdir()
    with workbench(tmp_path, "cuda-12.4"):
        pass
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {".lock", ".cuda-12.4-compiler.77", ".cuda-12.4.78"}


def test_a_pid_that_comes_back(tmp_path: Path) -> None:
    """A leftover of our own pid, from before a reboot, is no obstacle."""
    left = tmp_path / f".gcc.{os.getpid()}"
    (left / "tree").mkdir(parents=True)
    (left / SENTINEL).touch()
    with workbench(tmp_path, "gcc") as work:
        assert not (work / "tree").exists()


def test_another_run_is_at_work(tmp_path: Path) -> None:
    """The second run waits, and gives up with a message."""
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(InUseError, match="another run"),
        workbench(tmp_path, "x", wait_s=0.05),
    ):
        raise AssertionError("both runs at work")


def test_full_disk(tmp_path: Path) -> None:
    """A disk that fills up in the middle is a message, and nothing stays."""
    with (
        pytest.raises(StepFailed, match="No space left") as caught,
        workbench(tmp_path, "x") as work,
    ):
        (work / "half").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.hint == f"df -h {tmp_path}"
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_no_folder_can_be_made(tmp_path: Path) -> None:
    """A file where the folder should be is a message."""
    (tmp_path / "toolkits").touch()
    with (
        pytest.raises(StepFailed, match="cannot write .*x"),
        workbench(tmp_path / "toolkits", "x"),
    ):
        raise AssertionError("a file is no folder")


class TestPublish:
    """To its place."""

    def test_marked_flushed_renamed(self, fp: FakeProcess, tmp_path: Path) -> None:
        """The sentinel lies in it before it is renamed; the disk is flushed."""
        made, final = tmp_path / "kit", tmp_path / "cuda-12.4"
        made.mkdir()

        def sync(process: object) -> None:
            assert (made / SENTINEL).is_file() and not final.exists()

        fp.register(["sync", "-f", str(made)], callback=sync)
        publish(made, final)
        assert (final / SENTINEL).is_file() and not made.exists()

    def test_something_else_is_there(self, tmp_path: Path) -> None:
        """A folder of somebody else is left alone."""
        (tmp_path / "kit").mkdir()
        (tmp_path / "cuda-12.4").mkdir()
        with pytest.raises(StepFailed, match="is in the way"):
            publish(tmp_path / "kit", tmp_path / "cuda-12.4")
        assert (tmp_path / "kit").is_dir()

    def test_a_dangling_link_is_there(self, tmp_path: Path) -> None:
        """A link to nowhere is in the way too, and nothing at all is not."""
        (tmp_path / "cuda").symlink_to("nowhere")
        with pytest.raises(StepFailed, match="is in the way"):
            refuse_foreign(tmp_path / "cuda")
        refuse_foreign(tmp_path / "free")
