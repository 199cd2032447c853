# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A real nvcc that can emit sm_70, brought once and kept for the next run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tools.rig.base.errors import RigError
from tools.rig.builds import toolkit_kit
from tools.rig.host import cuda


def cache_folder() -> Path:
    """Return the folder that real tests keep big downloads in between runs."""
    given = os.environ.get("ONECAT_TEST_CACHE")
    base = Path(given) if given else Path.home() / ".cache" / "rig-tests"
    base.mkdir(parents=True, exist_ok=True)
    return base


def sm70_toolkit(release: str = "12.4") -> cuda.Toolkit:
    """Return a toolkit of that release; ``ONECAT_TEST_TOOLKIT`` names one to use instead.

    Skips the test when this machine can bring none, and says why.
    """
    given = os.environ.get("ONECAT_TEST_TOOLKIT")
    if given and release == "12.4":
        return cuda.probe(Path(given), "CUDA_HOME")
    fit = [r for r in toolkit_kit.recipes("debian", "compiler") if r.release == release]
    uv = shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")
    if not uv:
        pytest.skip("uv is not installed beside the test environment")
    place = cache_folder() / "toolkits"
    place.mkdir(exist_ok=True)
    with FileLock(str(place / "lock")):
        try:
            root = toolkit_kit.provision(fit[0], place, os.environ, uv=[uv])
        except RigError as exc:
            pytest.skip(f"no toolkit can be brought here: {exc.what}")
    return cuda.probe(root, "provisioned")
