# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Toolkits, compilers and other programs that will not do, or are not there."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakenvcc import fake_nvcc, scripted_nvcc
from tests.rig.support.newcomer import BUILD, refused
from tests.rig.support.newcomer import user as user
from tests.rig.support.workshop import Workshop, until
from tools.rig.base.state import SENTINEL
from tools.rig.builds import inventory

pytestmark = pytest.mark.real


class TestToolchain:
    """A toolkit or compiler that will not do."""

    @pytest.mark.parametrize(
        ("make", "code", "said"),
        [
            (lambda place: place, 2, "does not exist"),
            (lambda place: place.mkdir(), 2, "holds no bin/nvcc"),
            (fake_nvcc, 3, "cannot compile for sm_70"),
            (lambda p: scripted_nvcc(p, "echo hello"), 3, "does not say its version"),
            (lambda p: scripted_nvcc(p, "exit 9"), 3, "does not say its version"),
        ],
        ids=["missing", "empty", "cuda 13", "nonsense", "failing"],
    )
    def test_cuda_home(
        self, user: Workshop, make: Callable[[Path], Any], code: int, said: str
    ) -> None:
        """The user's own CUDA_HOME is never passed over silently."""
        place = user.home / "cuda"
        make(place)
        got = user.invoke("cuda-toolkit", CUDA_HOME=str(place))
        refused(got, code, str(place), said)

    def test_hanging_nvcc(self, user: Workshop) -> None:
        """An nvcc that hangs is given up after its time."""
        place = scripted_nvcc(user.home / "cuda", "exec sleep 600")
        got = user.invoke("cuda-toolkit", CUDA_HOME=str(place))
        refused(got, 3, "did not answer within 20 s")

    def test_no_compiler(self, user: Workshop) -> None:
        """Without any C++ compiler the package that brings one is named."""
        env = {"PATH": str(_path(user.home, "git")), "NVCC_CCBIN": ""}
        got = user.invoke("cuda-toolkit", ONECAT_OFFLINE="1", **env)
        refused(got, 3, "compiler", "apt-get install g++")

    def test_no_such_compiler(self, user: Workshop) -> None:
        """An NVCC_CCBIN that names nothing is refused."""
        got = user.invoke("cuda-toolkit", NVCC_CCBIN="/nonexistent/g++")
        refused(got, 2, "/nonexistent/g++")

    def test_cuobjdump_fails(self, shop: Workshop, tmp_path: Path) -> None:
        """Without a working cuobjdump nothing is claimed."""
        home = tmp_path / "cuda"
        # a toolkit of the user's own: of one that was brought the damage is noticed
        marks = shutil.ignore_patterns(SENTINEL, inventory.LIST, inventory.RECORD)
        shutil.copytree(shop.env["CUDA_HOME"], home, symlinks=True, ignore=marks)
        tool = home / "bin" / "cuobjdump"
        tool.unlink()
        tool.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
        tool.chmod(0o755)
        got = shop.invoke("verify", CUDA_HOME=str(home))
        assert got.returncode == 1
        assert "Traceback" not in got.stderr and "cuobjdump" in got.stderr
        assert "unknown" in got.stderr
        assert got.stderr.strip().splitlines()[-1].startswith("hint: ")


class TestMissing:
    """Programs and networks that are not there."""

    def test_no_git(self, user: Workshop) -> None:
        """Without git its package is named."""
        path = _path(user.home, "g++", "cc1plus", "as", "ld")
        got = user.invoke(*BUILD, PATH=str(path))
        refused(got, 3, "git", "apt-get install git")

    def test_no_network(self, user: Workshop) -> None:
        """Without a network the download is named, and the next run goes on."""
        if not _can_unshare():
            pytest.skip("no network namespace can be made here")
        alone = ["unshare", "--net", *user.argv(*BUILD)]
        nothing = {"UV_CACHE_DIR": str(user.home / "nothing")}
        with user.started(alone, env=nothing) as proc:
            until(lambda: "broke off" in user.said, lambda: user.said)
            proc.send_signal(signal.SIGINT)
            assert proc.wait(60) == 130
        assert "try 2 of 4 in" in user.said
        assert f"finished files are kept in {user.home}/nothing" in user.said

    def test_offline(self, user: Workshop) -> None:
        """ONECAT_OFFLINE=1 fetches nothing and says what is missing."""
        nothing = str(user.home / "nothing")
        got = user.invoke(*BUILD, ONECAT_OFFLINE="1", UV_CACHE_DIR=nothing)
        refused(got, 1, "uv pip install failed", "network was disabled")
        record = user.records()[-1]
        assert record["steps"][-1]["title"] == "build requirements"
        assert record["result"] == "failed"


def _path(home: Path, *programs: str) -> Path:
    """Return a folder for PATH that holds a few programs and no others."""
    place = home / "bin"
    place.mkdir()
    for name in ("sh", "cat", "uname", *programs):
        found = shutil.which(name)
        if found:
            (place / name).symlink_to(found)
    return place


def _can_unshare() -> bool:
    got = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return got.returncode == 0
