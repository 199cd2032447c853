# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The proof of a toolkit and a compiler: a kernel is compiled and looked into."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.fakecuda import compiler, program, toolkit
from tests.rig.support.toolkit_machine import V100, Machine
from tests.rig.support.toolkit_machine import machine as machine
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import inventory
from tools.rig.host import cubins
from tools.rig.steps import toolkit as step
from tools.rig.steps.shim import ShimResult


class TestProve:
    """The proof."""

    def prove(self, machine: Machine, root: str | Path = "/cuda") -> step.Pair:
        """Prove a pair."""
        return step.prove(
            Console(machine.said, {}),
            toolkit("12.4", root),
            compiler("g++-13", "13.3"),
            V100,
            machine.root,
            machine.env,
            ["brought"],
        )

    def test_shim(self, machine: Machine) -> None:
        """The shim's variables are in force, and it is worth a note."""
        flags = {"NVCC_PREPEND_FLAGS": "-I/shim -ccbin=/usr/bin/g++-13"}
        machine.shim = ShimResult(True, Path("/shim"), ("cospi",), flags, "clash")
        machine.compiles(Path("/cuda"))
        pair = self.prove(machine)
        assert pair.env["NVCC_PREPEND_FLAGS"] == flags["NVCC_PREPEND_FLAGS"]
        assert pair.notes == ("brought", "glibc shim in force: clash")

    def test_once(self, machine: Machine) -> None:
        """A pair that was proved is not compiled with again."""
        machine.compiles(Path("/cuda"))
        first = self.prove(machine)
        assert self.prove(machine).env == first.env

    def test_does_not_compile(self, machine: Machine) -> None:
        """What the compiler says is shown."""
        machine.compiles(Path("/cuda"), 1, "error: unsupported GNU version\n")
        with pytest.raises(StepFailed, match="cannot compile a kernel") as caught:
            self.prove(machine)
        assert caught.value.details == ("error: unsupported GNU version",)
        assert list(machine.root.tmp.glob("proof-*")) == []

    def test_killed(self, machine: Machine) -> None:
        """A compile that was killed is told from a pair that does not work."""
        machine.compiles(Path("/cuda"), 137, "Killed\n")
        with pytest.raises(StepFailed, match="was killed .* kernel for sm_70") as one:
            self.prove(machine)
        assert "memory ran out" in one.value.usual

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (cubins.Content((80,), 1), "it holds (80,)"),
            (cubins.Content(), "it holds none"),
            (cubins.Content(problem="cuobjdump failed"), "cuobjdump failed"),
        ],
    )
    def test_no_code(
        self, machine: Machine, content: cubins.Content, words: str
    ) -> None:
        """A file without code for the card is no proof."""
        machine.content = content
        machine.compiles(Path("/cuda"))
        with pytest.raises(StepFailed, match="holds no sm_70 code") as caught:
            self.prove(machine)
        assert caught.value.details == (words,)

    def test_a_brought_toolkit_is_at_fault(self, machine: Machine) -> None:
        """A damaged toolkit of ours ends in the command that takes it away."""
        home = machine.root.toolkits / "cuda-12.4"
        file = program(home / "bin" / "ptxas", "real")
        inventory.seal(home)
        seen = file.stat()
        file.write_text("lear")
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        machine.compiles(home, 1, "ptxas fatal\n")
        with pytest.raises(CannotError, match="bin/ptxas has another") as caught:
            self.prove(machine, home)
        assert caught.value.hint == f"rm -r {home}"
        assert caught.value.details == ("ptxas fatal",)

    def test_paths_that_nvcc_cannot_take(self, machine: Machine) -> None:
        """A toolkit below a quote is called through a link without one."""
        root = machine.tmp / 'a "quoted" place'
        machine.compiles(machine.tmp / "links" / root.name)
        pair = self.prove(machine, root)
        assert pair.env["CUDA_HOME"] == str(machine.tmp / "links" / root.name)

    def test_a_blank_is_no_obstacle_for_the_toolkit(self, machine: Machine) -> None:
        """A toolkit below a blank stays where it is."""
        machine.compiles(machine.tmp / "a b")
        pair = self.prove(machine, machine.tmp / "a b")
        assert pair.env["CUDA_HOME"] == str(machine.tmp / "a b")

    def test_a_blank_is_one_for_the_compiler(self, machine: Machine) -> None:
        """A compiler below a blank is told by a link: nvcc splits its variable."""
        machine.compiles(Path("/cuda"))
        blank = replace(compiler("g++-13", "13.3"), path=machine.tmp / "a b" / "g++-13")
        pair = step.prove(
            Console(machine.said, {}),
            toolkit("12.4", "/cuda"),
            blank,
            V100,
            machine.root,
            machine.env,
        )
        told = machine.tmp / "links" / "a b" / "g++-13"
        assert pair.compiler.path == told
