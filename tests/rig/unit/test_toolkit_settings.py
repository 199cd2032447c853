# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What ``cuda-toolkit`` makes of the user's own variables and options."""

from __future__ import annotations

import pytest

from tests.rig.support.fakecuda import gxx, nvcc
from tests.rig.support.toolkit_machine import Machine
from tests.rig.support.toolkit_machine import machine as machine
from tools.rig.base.errors import CannotError, UsageError


class TestFlags:
    """Options for nvcc in the user's environment."""

    BAD = "nvcc fatal   : Unknown option '--bogus'\n"
    OLD = "nvcc fatal   : Unsupported gpu architecture 'compute_70'\n"

    def nvcc(self, machine: Machine, release: str, *says: str) -> None:
        """Let an nvcc be here that plans no compile but with these words, in turn."""
        home = nvcc(machine.fp, machine.tmp / "cuda", release)
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        machine.env["CUDA_PATH"] = str(home)
        argv = [str(home / "bin" / "nvcc"), "--dryrun", machine.fp.any()]
        for said in says:
            machine.fp.register(argv, stderr=said, returncode=1 if said else 0)

    @pytest.mark.parametrize("name", ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"])
    def test_refused(self, machine: Machine, name: str) -> None:
        """What nvcc does not know is told before anything is fetched."""
        self.nvcc(machine, "12.4", "", self.BAD)
        with pytest.raises(UsageError, match=f"{name}=--bogus: nvcc does not kn") as ex:
            machine.plan(**{name: "--bogus"})
        assert ex.value.hint == f"unset {name}"

    def test_taken(self, machine: Machine) -> None:
        """Good ones cost two questions, none costs none."""
        self.nvcc(machine, "12.4", "", "", "")
        both = {"NVCC_PREPEND_FLAGS": "-lineinfo", "NVCC_APPEND_FLAGS": "-Wno-x"}
        assert machine.plan(**both).toolkit is not None

    @pytest.mark.parametrize(("said", "taken"), [(BAD, False), (OLD, True)])
    def test_of_one_that_is_brought(
        self, machine: Machine, said: str, taken: bool
    ) -> None:
        """A newer nvcc knows what no nvcc knows; what it is too new for may be good."""
        self.nvcc(machine, "13.0", "", said)
        machine.env["NVCC_APPEND_FLAGS"] = "--bogus"
        if taken:
            assert machine.plan().recipe is not None
            return
        with pytest.raises(UsageError, match="does not know it"):
            machine.plan()

    def test_too_old_to_tell(self, machine: Machine) -> None:
        """What an older nvcc does not know the one that is brought may know."""
        self.nvcc(machine, "11.8")
        assert machine.plan(NVCC_APPEND_FLAGS="--new").recipe is not None

    def test_not_its_fault(self, machine: Machine) -> None:
        """What nvcc says without them as well, or of its compiler, is another's."""
        said = "nvcc fatal   : Failed to preprocess host compiler properties.\n"
        self.nvcc(machine, "12.4", self.OLD, self.OLD)
        assert machine.plan(NVCC_APPEND_FLAGS="-lineinfo").toolkit is not None
        self.nvcc(machine, "12.4", "", said)
        assert machine.plan(NVCC_APPEND_FLAGS="-lineinfo").toolkit is not None


class TestUserSettings:
    """What the user has set wrongly is told before anything is looked at."""

    def test_cuda_home_missing(self, machine: Machine) -> None:
        """A folder that does not exist."""
        with pytest.raises(UsageError, match="CUDA_HOME=/none/x does not exist"):
            machine.plan(CUDA_HOME="/none/x")

    def test_cuda_home_empty(self, machine: Machine) -> None:
        """A folder without nvcc."""
        with pytest.raises(UsageError, match="holds no bin/nvcc") as caught:
            machine.plan(CUDA_HOME=str(machine.tmp))
        assert caught.value.hint.startswith("unset CUDA_HOME")

    def test_cuda_home_with_a_newline(self, machine: Machine) -> None:
        """A path that no tool can quote."""
        with pytest.raises(UsageError):
            machine.plan(CUDA_HOME="/a\nb")

    def test_cuda_home_that_cannot(self, machine: Machine) -> None:
        """One that cannot do sm_70 is a problem with a way out."""
        home = nvcc(machine.fp, machine.tmp / "cuda", "13.0")
        plan = machine.plan(CUDA_HOME=str(home))
        with pytest.raises(CannotError, match="CUDA_HOME is set to") as caught:
            machine.act(plan)
        assert caught.value.hint.startswith("unset CUDA_HOME")

    @pytest.mark.parametrize(
        ("variable", "value"),
        [("NVCC_CCBIN", "g++-3"), ("NVCC_PREPEND_FLAGS", "-ccbin g++-3")],
    )
    def test_compiler_missing(
        self, machine: Machine, variable: str, value: str
    ) -> None:
        """A compiler that does not exist, although another one does."""
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        with pytest.raises(UsageError, match=f"{variable} names the host") as caught:
            machine.plan(**{variable: value})
        assert caught.value.hint == f"unset {variable}"
