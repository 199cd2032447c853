# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Releases of setuptools-scm, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.rig.support.toolkit import cache_folder

_FINDER = """
import sys
from importlib.metadata import entry_points
(found,) = [e for e in entry_points(group="setuptools.file_finders")
            if e.name == "setuptools_scm"]
print(sorted(found.load()(".")))
"""


def setuptools_scm(version: str) -> Path:
    """Return a folder for PYTHONPATH with that release in it, or skip the test."""
    place = cache_folder() / "setuptools-scm"
    place.mkdir(exist_ok=True)
    tag = f"{version}-{sys.version_info[0]}.{sys.version_info[1]}"
    done = place / tag
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    with FileLock(str(place / "lock")):
        if not done.is_dir():
            new = place / f"{tag}.new"
            shutil.rmtree(new, ignore_errors=True)
            words = ["pip", "install", "-q", "--python", sys.executable]
            words += [
                "--target",
                str(new),
                f"setuptools-scm=={version}",
                "setuptools<81",
            ]
            got = subprocess.run(
                [uv, *words], capture_output=True, text=True, check=False
            )
            if got.returncode:
                pytest.skip(
                    f"setuptools-scm {version} cannot be had: {got.stderr[-200:]}"
                )
            os.rename(new, done)
    return done


def scm(
    packages: Path, what: str, repository: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Ask for the ``version`` of `repository`, or for its ``files``."""
    words = ["-m", "setuptools_scm"] if what == "version" else ["-c", _FINDER]
    return subprocess.run(
        [sys.executable, *words],
        cwd=repository,
        env={**env, "PYTHONPATH": str(packages), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
