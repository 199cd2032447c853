# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The README's main command on this machine, in a fresh clone and an empty home."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.toolkit import cache_folder
from tools.rig.builds.target import HERE

pytestmark = pytest.mark.e2e

MINE = (
    "ONECAT_",
    "RIG_",
    "CUDA_",
    "NVCC_",
    "MAX_JOBS",
    "TORCH_CUDA",
    "XDG_",
    "VIRTUAL",
)


class NewUser:
    """Somebody with an empty home and a fresh clone."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.clone = folder / "rig"
        self.home.mkdir()
        quiet = ["git", "clone", "--quiet", "--no-hardlinks"]
        subprocess.run([*quiet, str(HERE), str(self.clone)], check=True)

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the clone as the new user types it."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(MINE)}
        env |= {"HOME": str(self.home), "TERM": "dumb"}
        # the bootstrap's own environment is the same for every test: made once
        env["XDG_CACHE_HOME"] = str(cache_folder() / "xdg")
        return subprocess.run(
            words,
            cwd=self.clone,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=1500,
        )

    def record(self) -> dict[str, Any]:
        """Return the newest build's record."""
        folder = self.home / ".local/state/1cat-rig/records"
        newest = max(folder.glob("*.json"))
        data = json.loads(newest.read_text(encoding="utf-8"))
        assert isinstance(data, dict)
        return data


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> NewUser:
    """Return a new user."""
    return NewUser(tmp_path_factory.mktemp("user"))


def test_one_command(user: NewUser) -> None:
    """The sample is built and proved; who uses it and what it holds can be asked."""
    got = user.types("tools/rebuild-sm70-v100.sh")
    assert got.returncode == 0, got.stdout[-4000:]
    record = user.record()
    assert record["result"] == "done"
    [library] = [x for x in record["verify"]["libraries"] if x["sms"]]
    assert library["sms"] == [70]
    assert user.types("tools/nox", "-s", "task", "--", "in-use").returncode == 0
    assert user.types("tools/nox", "-s", "task", "--", "verify").returncode == 0


def test_a_profile_without_its_target_is_tried_on_the_sample(user: NewUser) -> None:
    """CUDA 11.8 for an A100: toolkit, an older g++ and sm_80 code, all of it real."""
    words = ("tools/rebuild-sm70-v100.sh", "--profile", "a100-cu118")
    got = user.types(*words)
    assert got.returncode == 0, got.stdout[-4000:]
    record = user.record()
    assert "CUDA 11.8" in record["plan"]["toolchain"]
    assert "g++ 11" in record["plan"]["toolchain"]
    [library] = [x for x in record["verify"]["libraries"] if x["sms"]]
    assert library["sms"] == [80]


def test_wrong_words_come_through_nox(user: NewUser) -> None:
    """The script passes the step's own exit code on, where nox can only say 1."""
    got = user.types("tools/rebuild-sm70-v100.sh", "--jobs", "many")
    assert got.returncode == 2, got.stdout[-4000:]
    assert "hint:" in got.stdout
