# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A real nvcc that can emit sm_70, brought once and kept for the next run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tools.rig.base.errors import CannotError
from tools.rig.base.state import SENTINEL, remove_made
from tools.rig.builds import compiler_kit, inventory, toolkit_kit
from tools.rig.builds.private_apt import archive_owner, have_dpkg
from tools.rig.host import compat, compilers, cuda, system
from tools.rig.host.compilers import HostCompiler


def cache_folder() -> Path:
    """Return the folder that real tests keep big downloads in between runs."""
    given = os.environ.get("ONECAT_TEST_CACHE")
    base = Path(given) if given else Path.home() / ".cache" / "rig-tests"
    base.mkdir(parents=True, exist_ok=True)
    return base


def kits() -> Path:
    """Return the folder of kept toolkits, without those that know not their files.

    An earlier version of the suite may have left them there.
    """
    folder = cache_folder() / "toolkits"
    for kit in folder.glob("*/"):
        if (kit / SENTINEL).is_file() and not (kit / inventory.LIST).is_file():
            remove_made(kit)
    return folder


def sm70_toolkit(release: str = "12.4") -> cuda.Toolkit:
    """Return a toolkit of that release; ``ONECAT_TEST_TOOLKIT`` names one instead.

    Skips the test where this kind of machine can bring none, and says why; a download
    that breaks fails it.
    """
    given = os.environ.get("ONECAT_TEST_TOOLKIT")
    if given and release == "12.4":
        return cuda.probe(Path(given), "CUDA_HOME")
    needs_packages()
    owner = archive_owner(system.distribution())
    fit = [r for r in toolkit_kit.recipes(owner, "compiler") if r.release == release]
    if not fit:
        pytest.skip(f"the archive of this distribution has no CUDA {release}")
    try:
        root = toolkit_kit.provision(fit[0], kits(), os.environ, uv=[needs_uv()])
    except CannotError as exc:
        pytest.skip(f"no toolkit can be brought here: {exc.what}")
    return cuda.probe(root, "provisioned")


def fitting_compiler(release: str, cxx: int = 17) -> HostCompiler:
    """Return a host compiler that a release takes, brought where none is here."""
    for found in compilers.find(os.environ):
        if not compilers.refusal(release, found, cxx):
            return found
    needs_packages()
    ceiling = compat.gcc_max(release)
    assert ceiling is not None
    try:
        return compiler_kit.bring(ceiling, kits(), os.environ)
    except CannotError as exc:
        pytest.skip(f"no compiler for CUDA {release} can be brought: {exc.what}")


def needs_packages() -> None:
    """Skip where the distribution's packages cannot be had."""
    if not have_dpkg() or not archive_owner(system.distribution()):
        pytest.skip("needs a distribution with apt-get and dpkg-deb")


def needs_uv() -> str:
    """Return uv, or skip."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("uv", path=beside) or shutil.which("uv")
    if not found:
        pytest.skip("uv is not installed beside the test environment")
    return found
