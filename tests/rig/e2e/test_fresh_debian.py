# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The README's commands in a fresh Debian 13 tree (glibc 2.41), as a new user types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.tree import Tree, debian
from tools.rig.builds.target import HERE

pytestmark = pytest.mark.e2e

PACKAGES = ("python3", "python3-venv", "git", "g++-13")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """Return a tree with a clone of this repository in it."""
    made = debian("trixie", PACKAGES, tmp_path_factory.mktemp("trixie") / "tree")
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(HERE)]
    subprocess.run([*clone, str(made.path / "opt" / "rig")], check=True)
    yield made


def _record(tree: Tree) -> dict[str, Any]:
    [file] = (tree.path / "root/.local/state/1cat-rig/records").glob("*.json")
    data = json.loads(Path(file).read_text())
    assert isinstance(data, dict)
    return data


def test_one_command_builds_the_sample(tree: Tree) -> None:
    """From a bare tree to a proved build: the toolkit is brought, glibc is shimmed."""
    got = tree.run(["/opt/rig/tools/rebuild-sm70-v100.sh"])
    assert got.returncode == 0, got.stdout[-4000:]
    record = _record(tree)
    assert record["result"] == "done"
    notes = " ".join(record["notes"])
    assert "glibc shim in force" in notes
    assert "12.4" in notes


def test_the_unit_tests_pass_there(tree: Tree) -> None:
    """The test command works where nothing was installed first."""
    got = tree.run(["/opt/rig/tools/nox", "-s", "unit"])
    assert got.returncode == 0, got.stdout[-4000:]
    assert " passed" in got.stdout


def test_too_new_a_compiler_is_no_end(tree: Tree) -> None:
    """With g++ 14 alone an older one is brought, without root and without apt."""
    apt = "apt-get -q update && apt-get -q install -y --no-install-recommends g++-14"
    got = tree.run(["sh", "-c", f"{apt} && apt-get -q purge -y g++-13"])
    assert got.returncode == 0, got.stdout[-2000:]
    got = tree.run(["/opt/rig/tools/nox", "-s", "task", "--", "cuda-toolkit"])
    assert got.returncode == 0, got.stdout[-4000:]
    assert "host compiler g++ 13" in got.stdout
    assert "/toolkits/gcc-13/" in got.stdout
