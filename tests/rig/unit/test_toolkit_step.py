# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``cuda-toolkit``: what is looked at and what is brought; every program is a fake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakecuda import compiler, gxx, nvcc, program
from tests.rig.support.toolkit_machine import RECIPE, V100, Machine
from tests.rig.support.toolkit_machine import machine as machine
from tools.rig.base.config import resolve
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import inventory
from tools.rig.steps import toolkit as step

OFFLINE = resolve({"offline": True}, {})


class TestPlan:
    """What will be used, without changing anything."""

    def test_a_pair_that_is_here(self, machine: Machine) -> None:
        """CUDA_HOME and the g++ on PATH."""
        home = nvcc(machine.fp, machine.tmp / "cuda")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        found = machine.plan(CUDA_HOME=str(home))
        assert found.toolkit is not None and found.toolkit.root == home
        assert found.compiler is not None and found.compiler.major == 12
        assert not (machine.tmp / "state").exists()

    def test_what_was_brought_counts(self, machine: Machine) -> None:
        """Toolkits and compilers of earlier runs are used again."""
        made = nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        old = gxx(machine.fp, machine.root.toolkits / "gcc-13/usr/bin/g++-13", "13 3")
        (machine.root.toolkits / "gcc-13" / ".rig-made").touch()
        found = machine.plan()
        assert found.toolkit is not None and found.toolkit.root == made
        assert found.compiler is not None and found.compiler.path == old

    def test_recipe(self, machine: Machine) -> None:
        """CUDA 13 alone is passed over, and the newest recipe is taken."""
        home = nvcc(machine.fp, machine.tmp / "cuda", "13.0")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        machine.env["PATH"] += f":{home}/bin"
        found = machine.plan()
        assert found.recipe == RECIPE and "cannot compile for sm_70" in found.reasons[0]

    def test_without_a_root(self, machine: Machine) -> None:
        """Before a root is chosen nothing of ours is looked for."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        found = step.plan(resolve({}, {}), V100, None, machine.env)
        assert found.recipe == RECIPE and found.compiler is None

    def test_no_compiler_to_stand_on(self, machine: Machine) -> None:
        """Plan and act say alike that none can be brought, with a package that is."""
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        machine.offered = 12
        found = machine.plan()
        assert found.problem.endswith("takes the parts of an installed g++")
        assert found.hint == "sudo apt-get install g++-12"
        with pytest.raises(CannotError) as caught:
            machine.act(found)
        assert caught.value.hint == found.hint

    def test_a_damaged_toolkit(self, machine: Machine) -> None:
        """One that lost a part is passed over, and brought again."""
        home = nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        header = program(home / "include" / "cuda_runtime.h", "x")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        inventory.seal(home)
        assert machine.plan().toolkit is not None
        header.write_text("")
        found = machine.plan()
        assert found.recipe == RECIPE
        assert "is damaged: include/cuda_runtime.h has 0 of 1 bytes" in found.reasons[0]

    def test_a_damaged_compiler(self, machine: Machine) -> None:
        """One that lost a part is passed over, and brought again."""
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        folder = machine.root.toolkits / "gcc-13"
        gxx(machine.fp, folder / "usr/bin/g++-13", "13 3")
        part = program(folder / "usr/lib/cc1plus", "x")
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        inventory.seal(folder)
        assert machine.plan().compiler is not None
        part.chmod(0o644)
        found = machine.plan()
        assert (found.compiler, found.problem) == (None, "")
        assert "usr/lib/cc1plus is not executable" in found.reasons[-1]

    def test_offline(self, machine: Machine) -> None:
        """Offline nothing is brought, neither toolkit nor compiler."""
        found = machine.plan(OFFLINE)
        assert "ONECAT_OFFLINE=1 forbids" in found.problem
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        found = machine.plan(OFFLINE)
        assert found.problem.startswith("no host compiler that CUDA 12.4 takes")
        assert found.hint == "sudo apt-get install g++"
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        assert not machine.plan(OFFLINE).problem

    def test_no_dpkg(self, machine: Machine) -> None:
        """Elsewhere than on Debian and its kin nothing can be brought."""
        machine.patch.setattr(step, "have_dpkg", lambda: False)
        assert "none can be brought on this distribution" in machine.plan().problem


class TestAct:
    """Bring and prove."""

    def test_nothing_to_bring(self, machine: Machine) -> None:
        """A kernel is compiled for each architecture, with the target's standard."""
        home = nvcc(machine.fp, machine.tmp / "cuda")
        gxx(machine.fp, machine.tmp / "bin" / "c++")
        machine.compiles(home)
        pair = machine.act(machine.plan(CUDA_HOME=str(home)))
        assert pair.env["CUDA_HOME"] == str(home) and pair.notes == ()
        assert machine.shim_env["NVCC_PREPEND_FLAGS"].startswith("-ccbin=")
        assert list(machine.root.tmp.glob("proof-*")) == []
        data = pair.to_json()
        assert data["version"] == "12.4.100" and data["compiler_version"] == "gcc 12.2"
        assert data["env"] == pair.env and data["shim"] == "not needed"

    def test_both_are_brought(self, machine: Machine) -> None:
        """Toolkit and compiler come with a line each, and reasons are shown."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        place = machine.root.toolkits / RECIPE.folder_name
        calls = []

        def provision(*args: Any, **kwargs: Any) -> Path:
            calls.append((args, kwargs))
            return nvcc(machine.fp, place)

        def bring(*args: Any) -> Any:
            calls.append((args, {}))
            return compiler("g++-13", "13.3")

        machine.patch.setattr(step.toolkit_kit, "provision", provision)
        machine.patch.setattr(step.compiler_kit, "bring", bring)
        machine.compiles(place)
        plan = replace(machine.plan(), reasons=("passed over CUDA 13.0",))
        pair = machine.act(plan)
        (first, options), (second, _) = calls
        assert first == (RECIPE, machine.root.toolkits, machine.env)
        assert options == {"mirror": None, "uv": ["/bin/uv"]}
        assert second == (13, machine.root.toolkits, machine.env, None)
        assert len(pair.notes) == 2 and "none here fitted" in pair.notes[0]
        assert "passed over CUDA 13.0" in machine.said.getvalue()
        assert "bringing CUDA 12.4 from debian trixie" in machine.said.getvalue()

    def test_brought_toolkit_is_broken(self, machine: Machine) -> None:
        """A toolkit that does not run is a failure."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        machine.patch.setattr(
            step.toolkit_kit, "provision", lambda *a, **k: machine.tmp / "none"
        )
        with pytest.raises(StepFailed, match="brought toolkit does not work"):
            machine.act(machine.plan())

    def test_brought_compiler_does_not_fit(self, machine: Machine) -> None:
        """Nor is a compiler taken that the toolkit refuses."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        machine.patch.setattr(
            step.compiler_kit, "bring", lambda *a: compiler("g++-14", "14.2")
        )
        with pytest.raises(StepFailed, match="does not fit: CUDA 12.4 takes gcc"):
            machine.act(machine.plan())
