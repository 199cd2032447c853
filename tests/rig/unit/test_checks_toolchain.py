# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""System and toolchain checks, on a machine with one thing changed."""

from dataclasses import replace

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.builds import compiler_kit, inventory
from tools.rig.host.system import Distribution
from tools.rig.steps.checks import (
    system,
    toolchain,
)

GIB = 1 << 30


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """Let the package lists of this machine say nothing."""
    monkeypatch.setattr(compiler_kit, "offered", lambda newest, here: None)


H200 = replace(fake.V100, name="H200", sm=90)


class TestSettings:
    """Variables of the user's that a build refuses."""

    def test_nothing_set(self):
        """Without variables there is nothing to refuse."""
        found = toolchain.settings(fake.facts())
        assert (found.status, found.detail) == ("ok", "none set")

    def test_good_ones_are_named(self):
        """What is set and will do is listed."""
        found = toolchain.settings(fake.facts({"TORCH_CUDA_ARCH_LIST": "7.0;8.0"}))
        assert (found.status, found.detail) == ("ok", "TORCH_CUDA_ARCH_LIST")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("NVCC_CCBIN", "/nonexistent/g++"),
            ("NVCC_PREPEND_FLAGS", "-ccbin /nonexistent"),
            ("TORCH_CUDA_ARCH_LIST", "8.0"),
            ("CUDA_HOME", "/nonexistent"),
        ],
    )
    def test_what_a_build_refuses_fails_here(self, name, value):
        """The doctor says no where the build would, with the same hint."""
        found = toolchain.settings(fake.facts({name: value}))
        assert found.status == "fail"
        assert name in found.detail and f"unset {name}" in found.hint

    def test_flags_that_nvcc_refuses(self, monkeypatch):
        """Options for nvcc are tried on the toolkit of the build."""

        def check(plan, found, env):
            raise UsageError(f"{env['NVCC_APPEND_FLAGS']} is none", hint="unset it")

        monkeypatch.setattr(toolchain.nvcc_flags, "check_plan", check)
        found = toolchain.toolkit(fake.facts({"NVCC_APPEND_FLAGS": "--bogus"}))
        assert (found.status, found.hint) == ("fail", "unset it")
        assert found.detail == "--bogus is none"

    def test_all_refusals_are_told(self):
        """Two bad ones are told together."""
        env = {"CUDA_HOME": "/nonexistent", "TORCH_CUDA_ARCH_LIST": "8.0"}
        found = toolchain.settings(fake.facts(env))
        assert all(name in found.detail for name in env)


class TestSystem:
    """Distribution, glibc, kind of machine, shared memory."""

    def test_distribution(self):
        """The distribution is named and its version can be compared."""
        found = system.distribution(fake.facts())
        assert (found.status, found.detail) == ("ok", "Debian GNU/Linux 12 (bookworm)")
        assert found.data["version"] == "12"

    def test_no_os_release_is_unknown(self):
        """Without os-release nothing is guessed."""
        facts = fake.facts(distribution=lambda: Distribution("", "", ""))
        assert system.distribution(facts).status == "unknown"

    def test_clean_glibc(self):
        """2.36 and CUDA 12.4 do not clash."""
        assert system.glibc(fake.facts()).status == "ok"

    @pytest.mark.parametrize(
        ("version", "release", "names"),
        [
            ("2.41", "12.4.131", ["cospi", "cospif", "sinpi", "sinpif"]),
            ("2.41", "12.9.86", ["cospi", "cospif", "sinpi", "sinpif"]),
            (
                "2.43",
                "12.8.93",
                ["cospi", "cospif", "rsqrt", "rsqrtf", "sinpi", "sinpif"],
            ),
        ],
    )
    def test_clash_is_a_work_round(self, version, release, names):
        """The shim is named with the functions; 12.9 needs it like every 12.x."""
        facts = fake.facts(
            glibc_headers=lambda: version,
            toolkits=lambda env, folder: [fake.toolkit(release)],
        )
        found = system.glibc(facts)
        assert found.status == "warn"
        assert found.workaround == f"glibc {version} header shim"
        assert found.data["clashes"] == names
        assert "12.9" not in found.hint

    def test_the_headers_count_and_not_the_running_library(self):
        """A compiler meets the headers; without them the running version stands in."""
        facts = fake.facts(glibc_headers=lambda: "2.41", glibc=lambda: "2.36")
        assert system.glibc(facts).status == "warn"
        facts = fake.facts(glibc_headers=lambda: "", glibc=lambda: "2.41")
        assert system.glibc(facts).status == "warn"

    def test_other_c_library_is_unknown(self):
        """Musl has no version to compare."""
        facts = fake.facts(glibc_headers=lambda: "", glibc=lambda: "")
        assert system.glibc(facts).status == "unknown"

    @pytest.mark.parametrize(("version", "status"), [("2.36", "ok"), ("2.41", "warn")])
    def test_without_a_toolkit(self, version, status):
        """With no toolkit in sight the newest that would do is looked at."""
        facts = fake.facts(
            glibc_headers=lambda: version,
            toolkits=lambda env, folder: [],
            recipes=lambda owner, parts: [],
        )
        found = system.glibc(facts)
        assert (found.status, found.workaround) == (status, "")

    @pytest.mark.parametrize(
        ("changes", "status", "word"),
        [
            ({}, "ok", "neither"),
            ({"container": lambda: "docker"}, "ok", "docker"),
            ({"wsl": lambda: True}, "warn", "WSL"),
        ],
    )
    def test_machine(self, changes, status, word):
        """A container is told, WSL is a warning."""
        found = system.machine(fake.facts(**changes))
        assert found.status == status
        assert word in found.detail

    @pytest.mark.parametrize(
        ("size", "status"), [(64 << 20, "warn"), (GIB, "ok"), (None, "warn")]
    )
    def test_shm(self, size, status):
        """Docker's 64 MiB of shared memory are too few for two workers."""
        found = system.shm(fake.facts(shm_bytes=lambda: size))
        assert found.status == status
        assert bool(found.hint) == (status == "warn")


class TestToolchain:
    """Toolkits and compilers."""

    def test_toolkits_are_listed_with_their_range(self):
        """Every toolkit is shown with what it can emit."""
        found = [fake.toolkit(), fake.toolkit("13.0.88", (75, 121), root="/opt/13")]
        shown = toolchain.toolkits(fake.facts(toolkits=lambda env, folder: found))
        assert shown.status == "ok"
        assert "sm_50 to sm_90" in shown.detail
        assert "sm_75 to sm_121" in shown.detail
        assert [t["version"] for t in shown.data["toolkits"]] == ["12.4.131", "13.0.88"]

    @pytest.mark.parametrize(
        ("origin", "hint"), [("CUDA_HOME", "unset CUDA_HOME"), ("PATH", "")]
    )
    def test_broken_toolkit_is_a_warning(self, origin, hint):
        """A toolkit that does not answer is shown with its problem."""
        bad = fake.toolkit("", (), origin, problem="nvcc did not answer within 20 s")
        shown = toolchain.toolkits(fake.facts(toolkits=lambda env, folder: [bad]))
        assert (shown.status, shown.hint) == ("warn", hint)
        assert "did not answer" in shown.detail

    def test_a_damaged_one_is_not_ready(self, tmp_path):
        """A toolkit that we brought and that lost a part is named and brought again."""
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "ptxas").write_text("x")
        inventory.seal(tmp_path)
        kit = fake.toolkit(origin="provisioned", root=tmp_path)
        facts = {"toolkits": lambda env, folder: [kit]}
        assert toolchain.toolkit(fake.facts(**facts)).status == "ok"
        (tmp_path / "bin" / "ptxas").unlink()
        shown = toolchain.toolkits(fake.facts(**facts))
        assert (shown.status, shown.hint) == ("warn", "invoke cuda-toolkit")
        found = toolchain.toolkit(fake.facts(**facts))
        assert (found.status, found.data["brought"]) == ("warn", True)
        for detail in (shown.detail, found.detail):
            assert "damaged: bin/ptxas is missing" in detail

    def test_no_toolkit_at_all(self):
        """An empty list is no fault of its own."""
        facts = fake.facts(toolkits=lambda env, folder: [])
        assert toolchain.toolkits(facts).status == "ok"
        found = toolchain.toolkit(facts)
        assert (found.status, "no toolkit is here" in found.detail) == ("warn", True)

    def test_fitting_toolkit(self):
        """A toolkit that fits is the one that a build would use."""
        found = toolchain.toolkit(fake.facts())
        assert (found.status, found.data["release"]) == ("ok", "12.4")
        assert not found.workaround

    def test_cuda_13_alone_is_brought_round(self):
        """CUDA 13 alone: the reason, and what will be brought."""
        only = [fake.toolkit("13.0.88", (75, 121))]
        found = toolchain.toolkit(fake.facts(toolkits=lambda env, folder: only))
        assert found.status == "warn"
        assert found.workaround == "CUDA 12.4 brought without root"
        assert "cannot compile for sm_70" in found.detail

    @pytest.mark.parametrize(
        "changes",
        [
            {"settings": fake.settings(offline=True)},
            {"have_dpkg": lambda: False},
            {"recipes": lambda owner, parts: []},
        ],
    )
    def test_nothing_fits_and_nothing_can_be_brought(self, changes):
        """Then this machine cannot, and the line says what to install."""
        only = [fake.toolkit("13.0.88", (75, 121))]
        found = toolchain.toolkit(
            fake.facts(toolkits=lambda env, folder: only, **changes)
        )
        assert found.status == "fail"
        assert found.hint

    def test_cuda_home_that_does_not_fit_is_never_replaced(self):
        """A CUDA_HOME of the user's own is refused with a reason."""
        home = [fake.toolkit("13.0.88", (75, 121), "CUDA_HOME")]
        found = toolchain.toolkit(
            fake.facts({"CUDA_HOME": "/opt/cuda"}, toolkits=lambda env, folder: home)
        )
        assert found.status == "fail"
        assert "unset CUDA_HOME" in found.hint

    def test_compilers_are_listed_with_what_the_toolkit_says(self):
        """A compiler that is too new is shown with the ceiling."""
        hosts = [fake.compiler(), fake.compiler("14.2", path="/usr/bin/g++-14")]
        found = toolchain.host_compilers(fake.facts(compilers=lambda env: hosts))
        assert found.status == "ok"
        assert "takes gcc up to 13" in found.detail
        assert found.data["compilers"] == ["gcc 12.2", "gcc 14.2"]

    def test_compilers_without_a_toolkit(self):
        """Without a toolkit there is nothing to compare with; a problem still shows."""
        broken = fake.compiler("", "", problem="does not run (status 1)")
        facts = fake.facts(
            toolkits=lambda env, folder: [],
            recipes=lambda owner, parts: [],
            compilers=lambda env: [fake.compiler(), broken],
        )
        found = toolchain.host_compilers(facts)
        assert "does not run" in found.detail
        assert toolchain.compiler(facts).status == "skip"

    def test_no_compiler_is_listed(self):
        """No compiler is told by the next check."""
        facts = fake.facts(compilers=lambda env: [])
        assert toolchain.host_compilers(facts).status == "ok"

    def test_chosen_compiler(self):
        """The compiler of the chosen pair is named."""
        found = toolchain.compiler(fake.facts())
        assert (found.status, found.data["compiler"]) == ("ok", "gcc 12.2")

    def test_too_new_compiler_is_brought_round(self):
        """With g++ 14 alone an older one is brought."""
        found = toolchain.compiler(
            fake.facts(compilers=lambda env: [fake.compiler("14.2")])
        )
        assert found.status == "warn"
        assert found.workaround == "g++ up to 13 brought without root"

    @pytest.mark.parametrize(
        ("hosts", "family", "hint"),
        [
            ([], "debian", "sudo apt-get install g++"),
            ([fake.compiler("14.2")], "debian", "sudo apt-get install g++"),
            ([], "fedora", "sudo dnf install gcc-c++"),
        ],
    )
    def test_no_compiler_and_none_to_bring(self, hosts, family, hint):
        """The package is named in the distribution's own words."""
        facts = fake.facts(
            compilers=lambda env: hosts,
            have_dpkg=lambda: False,
            distribution=lambda: Distribution(family, "1", "x"),
        )
        found = toolchain.compiler(facts)
        assert (found.status, found.hint) == ("fail", hint)

    def test_brought_compilers_count(self, tmp_path):
        """What an earlier run brought into the state folder is found."""
        facts = fake.facts(
            root=StateRoot(tmp_path),
            compilers=lambda env: [fake.compiler("14.2")],
            brought=lambda folder: [fake.compiler("13.3", path=f"{folder}/g++-13")],
        )
        assert "13.3" in toolchain.compiler(facts).detail
