# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A Debian machine for ``cuda-toolkit`` on which every program is a fake."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakescene import NO_SHIM
from tools.rig.base.config import Settings, resolve
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.builds import profile
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.toolkit_kit import recipes
from tools.rig.host import cubins
from tools.rig.host.system import Distribution
from tools.rig.steps import proof
from tools.rig.steps import toolkit as step
from tools.rig.steps.shim import ShimResult

V100 = replace(profile.load("v100-cu128"), toolkit_parts="compiler")
RECIPE = recipes("debian", "compiler")[0]


class Machine:
    """A Debian machine whose toolkits and compilers lie below a folder."""

    def __init__(
        self, fp: FakeProcess, tmp_path: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.fp, self.tmp, self.patch = fp, tmp_path, patch
        self.root = StateRoot(tmp_path / "state")
        self.said = io.StringIO()
        self.env = {"PATH": str(tmp_path / "bin")}
        self.shim = NO_SHIM
        self.shim_env: dict[str, str] = {}
        self.content = cubins.Content((70,), 1)
        self.offered: int | None = None
        find = step.cuda.find
        here = Distribution("debian", "13", "Debian 13", "trixie")
        patch.setattr(
            step.cuda,
            "find",
            lambda env, made: find(env, made, system=tmp_path / "none"),
        )
        patch.setattr(step, "have_dpkg", lambda: True)
        patch.setattr(step.compiler_kit, "offered", lambda newest, here: self.offered)
        patch.setattr(step.system, "distribution", lambda: here)
        patch.setattr(step, "shim", self._shim)
        patch.setattr(proof, "read_cubins", lambda made, tool: self.content)
        called = step.called
        patch.setattr(
            step,
            "called",
            lambda kit, host: called(
                kit, host, lambda path: tmp_path / "links" / path.name
            ),
        )
        patch.setattr(step, "uv_command", lambda: ["/bin/uv"])

    def _shim(self, *args: Any) -> ShimResult:
        self.shim_env = args[3]
        return self.shim

    def plan(self, settings: Settings | None = None, **env: str) -> PairPlan:
        """Plan for the V100."""
        self.env.update(env)
        return step.plan(settings or resolve({}, {}), V100, self.root, self.env)

    def act(self, plan: PairPlan) -> step.Pair:
        """Do what the plan says."""
        console = Console(self.said, {})
        settings = resolve({}, {})
        return step.act(console, plan, settings, V100, self.root, self.env)

    def compiles(self, root: Path, code: int = 0, err: str = "") -> None:
        """Let nvcc compile the proof."""
        argv = [str(root / "bin" / "nvcc"), "-arch=sm_70", "-std=c++20", "-c"]
        self.fp.register(
            [*argv, self.fp.any(min=3, max=3)], returncode=code, stderr=err
        )


@pytest.fixture
def machine(
    fp: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return the machine."""
    return Machine(fp, tmp_path, monkeypatch)
