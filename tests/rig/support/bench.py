# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The sample target, built by hand: with uv's own command lines and a real toolkit."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.rig.base import run
from tools.rig.builds import sample
from tools.rig.builds.sample import SampleCheckout
from tools.rig.host import cuda


def uv() -> Path:
    """Return uv; skip the test when there is none."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        pytest.skip("uv is not installed beside the test environment")
    return Path(found)


@dataclass(frozen=True)
class Bench:
    """A laid-out sample with an environment that holds its build requirements."""

    folder: Path
    checkout: SampleCheckout
    toolkit: cuda.Toolkit

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        return self.folder / "venv/bin/python"

    def env(self, arch_list: str, **more: str) -> dict[str, str]:
        """Return the environment of a build."""
        prefix, mirror = next(iter(self.checkout.mirrors.items()))
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return {
            **env,
            "PATH": f"{self.python.parent}{os.pathsep}{env.get('PATH', os.defpath)}",
            "VIRTUAL_ENV": str(self.folder / "venv"),
            "CUDA_HOME": str(self.toolkit.root),
            "TORCH_CUDA_ARCH_LIST": arch_list,
            "MAX_JOBS": "2",
            "FETCHCONTENT_BASE_DIR": str(self.folder / "deps"),
            # the mirror is of this user: git does not ask whose it is
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{mirror}.insteadOf",
            "GIT_CONFIG_VALUE_0": prefix,
            **more,
        }

    def wheel(self, arch_list: str, out: str) -> Path:
        """Build a wheel."""
        place = self.folder / out
        argv = [uv(), "build", "--wheel", "--no-build-isolation", "-o", place]
        argv += ["--python", self.python, self.checkout.path]
        run.run(argv, env=self.env(arch_list), cwd="/", check=True, timeout=300)
        (found,) = place.glob("*.whl")
        return found

    def editable(self, arch_list: str, **more: str) -> None:
        """Install the checkout in place."""
        argv = [uv(), "pip", "install", "--python", self.python, "--no-deps"]
        argv += ["--no-build-isolation", "-e", self.checkout.path]
        env = self.env(arch_list, **more)
        run.run(argv, env=env, cwd="/", check=True, timeout=300)


def make(folder: Path, toolkit: cuda.Toolkit) -> Bench:
    """Lay the sample out and make its environment; skip where no package can be had."""
    checkout = sample.lay_out(folder / "lay", os.environ)
    bench = Bench(folder, checkout, toolkit)
    base = Path(sys.executable).resolve()
    venv(folder / "venv", base)
    needs = checkout.path / "requirements"
    argv = [uv(), "pip", "install", "-q", "--python", bench.python]
    argv += ["-r", needs / "sample-build.txt", "-r", needs / "sample.txt"]
    got = run.run(argv, cwd="/", timeout=300)
    if not got.ok:
        pytest.skip(f"no package index: {got.err.strip().splitlines()[-1:]}")
    return bench


def venv(place: Path, base: Path) -> Path:
    """Make an empty environment and return its interpreter."""
    argv = [uv(), "venv", "-q", "--no-project", "--python", base, place]
    run.run(argv, cwd="/", check=True, timeout=120)
    return place / "bin/python"
