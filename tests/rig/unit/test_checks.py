# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Each check of the doctor, on a machine with one thing changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.state import StateRoot
from tools.rig.builds.candidates import Candidate
from tools.rig.host.gpu import Gpus
from tools.rig.host.loader import Cudnn
from tools.rig.host.look import Hung, Link
from tools.rig.host.memory import Cores, Memory
from tools.rig.host.pci import PciCard
from tools.rig.host.pythons import Python
from tools.rig.host.system import Distribution, Module
from tools.rig.steps.checks import (
    driver,
    environment,
    memory,
    network,
    python,
    storage,
    system,
    toolchain,
)

GIB = 1 << 30
ABSENT = Gpus("absent", "no NVIDIA driver")
BROKEN = Gpus("broken", "driver library and kernel module differ in version")
H200 = replace(fake.V100, name="H200", sm=90)


def gpus(driver="570.86.10", cards=(fake.V100,)):
    """Return a driver of a version with cards."""
    return lambda: Gpus("present", "", driver, "12.8", tuple(cards))


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
            ([fake.compiler("14.2")], "debian", "sudo apt-get install g++-13"),
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


class TestDriver:
    """Driver, module, cards and links."""

    def test_cards_are_listed(self):
        """Name, architecture and memory are shown."""
        found = driver.gpus(fake.facts())
        assert found.detail == "0: Tesla V100-SXM2-16GB (sm_70, 16 GiB)"

    def test_nothing_here_is_skipped(self):
        """No driver and no card is an ordinary machine."""
        facts = fake.facts(gpus=lambda: ABSENT, pci_cards=lambda: [])
        assert driver.gpus(facts).status == "skip"

    @pytest.mark.parametrize(
        ("bound", "word"), [("", "PCI bus"), ("nouveau", "nouveau")]
    )
    def test_card_without_a_driver_is_a_warning(self, bound, word):
        """A V100 on the bus without a driver is told, with the last branch for it."""
        card = replace(fake.ON_BUS, driver=bound)
        facts = fake.facts(gpus=lambda: ABSENT, pci_cards=lambda: [card])
        found = driver.gpus(facts)
        assert (found.status, word in found.detail) == ("warn", True)
        assert "Tesla V100 SXM2 16GB" in found.detail
        assert "R580" in found.hint

    def test_broken_driver_is_a_warning(self):
        """A driver that answers with an error is neither absent nor fine."""
        facts = fake.facts(gpus=lambda: BROKEN)
        assert driver.gpus(facts).status == "warn"
        assert driver.driver(facts).status == "unknown"
        assert driver.volta_driver(facts).status == "unknown"

    def test_cards_of_another_architecture(self):
        """A profile for sm_70 on a machine with an H200 alone is told."""
        found = driver.gpus(fake.facts(gpus=gpus(cards=[H200])))
        assert (found.status, "sm_70" in found.detail) == ("warn", True)
        both = driver.gpus(fake.facts(gpus=gpus(cards=[H200, fake.V100])))
        assert both.status == "ok"

    def test_card_that_says_nothing(self):
        """A card without name and capability is shown as unknown."""
        lost = replace(fake.V100, name="", sm=None, total=None)
        assert driver.gpus(fake.facts(gpus=gpus(cards=[lost]))).detail == "0: unknown"

    @pytest.mark.parametrize("version", ["580.65.06", "580.95.05", "590.44.01"])
    def test_a_cuda_13_driver_runs_every_12_toolkit(self, version):
        """A newer driver is never refused for an older toolkit."""
        found = driver.driver(fake.facts(gpus=gpus(version)))
        assert found.status == "ok"

    def test_driver_older_than_the_minimum_fails(self):
        """470 does not run CUDA 12 programs."""
        found = driver.driver(fake.facts(gpus=gpus("470.82.01")))
        assert (found.status, "525.60.13" in found.detail) == ("fail", True)
        assert "R580" in found.hint

    def test_driver_older_than_the_wheels_toolkit_is_warned_about(self):
        """535 runs CUDA 12 programs, but may refuse PTX of the wheel's 12.8."""
        found = driver.driver(fake.facts(gpus=gpus("535.104.05")))
        assert (found.status, "570.26" in found.detail) == ("warn", True)

    def test_profile_without_torch_looks_at_the_toolkit(self):
        """Without a wheel the toolkit's own bundled driver is the mark."""
        facts = fake.facts(
            gpus=gpus("535.104.05"), profile=fake.profile(torch_variant=None)
        )
        assert "550.54.14" in driver.driver(facts).detail

    def test_newer_card_gets_another_hint(self):
        """R580 is the limit of Volta and of nobody else."""
        facts = fake.facts(
            gpus=gpus("470.82.01", [replace(fake.V100, sm=80)]),
            profile=fake.profile(sms=(80,)),
        )
        assert driver.driver(facts).hint == "install a newer NVIDIA driver"

    def test_no_toolkit_to_compare_with(self):
        """Without a toolkit the driver is unknown and not good."""
        facts = fake.facts(
            toolkits=lambda env, folder: [], recipes=lambda owner, parts: []
        )
        assert driver.driver(facts).status == "unknown"

    @pytest.mark.parametrize(
        ("version", "cards", "on_bus", "status"),
        [
            ("580.95.05", [fake.V100], [fake.ON_BUS], "ok"),
            ("535.104.05", [fake.V100], [fake.ON_BUS], "ok"),
            ("590.44.01", [], [fake.ON_BUS], "fail"),
            ("590.44.01", [H200], [PciCard("x", "2335", "nvidia")], "warn"),
        ],
    )
    def test_volta_needs_r580_or_older(self, version, cards, on_bus, status):
        """R590 drives no Volta: a failure with one in the machine, else a warning."""
        facts = fake.facts(gpus=gpus(version, cards), pci_cards=lambda: on_bus)
        assert driver.volta_driver(facts).status == status

    def test_volta_branch_is_nothing_to_newer_profiles(self):
        """An A100 has no last branch yet."""
        facts = fake.facts(profile=fake.profile(sms=(80,)))
        assert driver.volta_driver(facts).status == "skip"

    def test_no_driver_is_skipped_everywhere(self):
        """Without a driver there is no branch to judge."""
        facts = fake.facts(gpus=lambda: ABSENT)
        assert driver.driver(facts).status == "skip"
        assert driver.volta_driver(facts).status == "skip"

    @pytest.mark.parametrize(
        ("loaded", "on_bus", "status"),
        [
            (None, [], "skip"),
            (Module("570.1", "proprietary"), [fake.ON_BUS], "ok"),
            (Module("570.1", "open"), [fake.ON_BUS], "fail"),
            (Module("570.1", "open"), [], "ok"),
            (Module("", ""), [fake.ON_BUS], "unknown"),
        ],
    )
    def test_volta_needs_the_proprietary_module(self, loaded, on_bus, status):
        """The open module starts at Turing; with a V100 here it is a failure."""
        facts = fake.facts(module=lambda: loaded, pci_cards=lambda: on_bus)
        assert driver.module(facts).status == status

    @pytest.mark.parametrize(
        ("seen", "status"),
        [
            (fake.two_cards(6), "ok"),
            (fake.two_cards(0, "no"), "warn"),
            (fake.two_cards(None, "unknown"), "unknown"),
            (ABSENT, "skip"),
        ],
    )
    def test_links_between_two_cards(self, seen, status):
        """Links are good, PCIe alone is slow, and one card is no pair."""
        assert driver.nvlink(fake.facts(gpus=lambda: seen)).status == status


class TestPython:
    """Python and the programs around it."""

    def test_profile_python_is_here(self):
        """The profile's Python is named."""
        found = python.python(fake.facts())
        assert found.status == "ok"
        assert found.data == {"wanted": "3.12", "release": "3.12"}

    def test_uv_brings_a_missing_python(self):
        """Another Python stands in when uv cannot reach it."""
        other = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")
        found = python.python(fake.facts(survey=fake.survey(pythons=(other,))))
        assert (found.status, found.workaround) == ("warn", "Python 3.12 through uv")
        assert "else 3.11.2" in found.detail

    def test_offline_takes_what_is_here(self):
        """Offline an admitted Python will do, and is named as a work-round."""
        other = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")
        seen = fake.survey(pythons=(other,), offline=True)
        found = python.python(fake.facts(survey=seen))
        assert found.workaround == "Python 3.11 instead of 3.12"

    def test_offline_without_any_python_fails(self):
        """Then the line says what to install."""
        seen = fake.survey(pythons=(), offline=True)
        found = python.python(fake.facts(survey=seen))
        assert (found.status, "python3.12" in found.hint) == ("fail", True)

    def test_environment_that_is_there(self):
        """An environment that is ready keeps its Python."""
        ready = Candidate(
            Path("/s"), "chosen before", fake.disk("/s"), False, "ready", "3.12.4"
        )
        found = python.python(fake.facts(survey=fake.survey(candidates=(ready,))))
        assert (found.status, "3.12.4" in found.detail) == ("ok", True)

    @pytest.mark.parametrize(
        ("check", "name"), [(python.uv, "uv"), (python.git, "git")]
    )
    def test_needed_program(self, check, name):
        """Missing is a failure with a hint, nonsense is unknown."""
        assert check(fake.facts()).status == "ok"
        missing = check(fake.facts(program=fake.programs(**{name: None})))
        assert missing.status == "fail"
        assert missing.hint
        odd = check(fake.facts(program=fake.programs(**{name: "!talks nonsense"})))
        assert odd.status == "unknown"

    @pytest.mark.parametrize(
        ("version", "word"),
        [
            ("4.0.1", "4.0.1"),
            ("3.25.1", "too old"),
            (None, "not here"),
            ("!hangs", "hangs"),
            ("4..x", "too old"),
        ],
    )
    def test_cmake_comes_as_a_wheel(self, version, word):
        """An old or missing CMake is no obstacle while wheels can be fetched."""
        texts = {
            fake.SOURCE / "pyproject.toml": 'requires = ["cmake>=3.26.1", "ninja"]',
            fake.SOURCE / "CMakeLists.txt": "cmake_minimum_required(VERSION 3.26)\n",
        }
        facts = fake.facts(
            program=fake.programs(cmake=version),
            text=lambda path: (texts.get(path), ""),
        )
        found = python.cmake(facts)
        assert (found.status, word in found.detail) == ("ok", True)
        assert found.data["asked"] == "3.26.1"

    def test_offline_an_old_cmake_is_a_warning(self):
        """Offline the wheel may not be in the cache."""
        facts = fake.facts(
            program=fake.programs(cmake=None, ninja=None),
            settings=fake.settings(offline=True),
        )
        assert python.cmake(facts).status == "warn"
        assert python.ninja(facts).hint == "install ninja"

    def test_ninja_of_any_version(self):
        """Ninja is asked for in any version."""
        assert python.ninja(fake.facts()).status == "ok"

    @pytest.mark.parametrize(
        ("version", "text", "env", "status"),
        [
            ("2.7.6", None, {}, "ok"),
            (None, None, {}, "skip"),
            (None, "PATCH_COMMAND x", {}, "fail"),
            (None, "PATCH_COMMAND x", {"VLLM_FLASH_ATTN_SRC_DIR": "/x"}, "skip"),
        ],
    )
    def test_patch_is_needed_where_sources_are_patched(
        self, version, text, env, status
    ):
        """The target's CMake files say whether patch is needed."""
        facts = fake.facts(
            env, program=fake.programs(patch=version), text=lambda path: (text, "")
        )
        assert python.patch(facts).status == status

    @pytest.mark.parametrize(
        ("versions", "status", "word"),
        [
            ({"sccache": "0.8.1"}, "ok", "sccache 0.8.1, ccache 4.7.5"),
            ({"ccache": None}, "warn", "neither"),
            ({"ccache": "!does not run"}, "warn", "does not run"),
        ],
    )
    def test_compile_cache(self, versions, status, word):
        """Without a cache a failed build starts from nothing."""
        found = python.cache(fake.facts(program=fake.programs(**versions)))
        assert (found.status, word in found.detail) == (status, True)

    @pytest.mark.parametrize(
        ("torch", "variant", "status"),
        [
            ("2.10.0", "cu128", "ok"),
            ("2.11.0", "cu128", "fail"),
            ("2.15.0", "cu132", "fail"),
            ("2.10.0", "cu999", "unknown"),
            (None, None, "skip"),
        ],
    )
    def test_torch_wheel(self, torch, variant, status):
        """Only wheels with code for the card will do; unknown ones are unknown."""
        profile = fake.profile(torch=torch, torch_variant=variant)
        assert python.torch(fake.facts(profile=profile)).status == status

    def test_torch_names_the_variants_that_do(self):
        """2.11 still has Volta in cu126."""
        profile = fake.profile(torch="2.11.0", torch_variant="cu128")
        assert "cu126 does" in python.torch(fake.facts(profile=profile)).detail

    def test_automatic_backend_is_warned_about(self):
        """Uv's auto looks at the driver only and takes a wheel without sm_70."""
        found = python.torch(fake.facts({"UV_TORCH_BACKEND": "auto"}))
        assert (found.status, found.hint) == ("warn", "unset UV_TORCH_BACKEND")


class TestMemory:
    """Memory and temporary files."""

    def test_jobs_from_memory_and_cores(self):
        """Eight cores and 60 GiB allow eight compiles of 4 GiB."""
        found = memory.memory(fake.facts())
        assert (found.status, "8 compiles" in found.detail) == ("ok", True)

    def test_memory_bounds_the_jobs(self):
        """9 GiB below a cgroup limit allow two."""
        have = Memory(64 * GIB, 60 * GIB, 10 * GIB, "/x/memory.max", 9 * GIB)
        found = memory.memory(fake.facts(memory=lambda: have))
        assert "2 compiles" in found.detail
        assert "10.0 GiB by its cgroup" in found.detail

    def test_less_than_one_compile_is_a_warning(self):
        """2 GiB may be too few for a single compile."""
        have = Memory(4 * GIB, 2 * GIB, None, "", 2 * GIB)
        assert memory.memory(fake.facts(memory=lambda: have)).status == "warn"

    def test_user_may_ask_for_too_many(self):
        """MAX_JOBS beyond the memory is kept and warned about."""
        have = Memory(16 * GIB, 16 * GIB, None, "", 16 * GIB)
        facts = fake.facts(memory=lambda: have, settings=fake.settings(jobs=16))
        found = memory.memory(facts)
        assert (found.status, found.hint) == ("warn", "export MAX_JOBS=4")
        few = fake.facts(memory=lambda: have, settings=fake.settings(jobs=2))
        assert "2 compiles" in memory.memory(few).detail

    def test_unreadable_memory_is_unknown(self):
        """Zero bytes mean that nothing could be read."""
        have = Memory(0, 0, None, "", 0)
        facts = fake.facts(memory=lambda: have, cores=lambda: Cores(1, None, 1))
        assert memory.memory(facts).status == "unknown"

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({}, "ok"),
            ({"fs": "tmpfs"}, "warn"),
            ({"free": GIB}, "warn"),
            ({"writable": False}, "warn"),
            ({"exists": False}, "warn"),
            ({"hung": True, "problem": "no answer"}, "warn"),
        ],
    )
    def test_temporary_files(self, change, status):
        """Memory, a full disk, no permission and a stuck one are worked round."""
        found = memory.tmpdir(fake.facts(disk=lambda path: fake.disk(path, **change)))
        assert found.status == status
        assert bool(found.workaround) == (status == "warn")

    def test_tmpdir_is_honoured(self):
        """The user's TMPDIR is the one that is looked at."""
        found = memory.tmpdir(fake.facts({"TMPDIR": "/scratch/me"}))
        assert found.detail.startswith("/scratch/me")


class TestStorage:
    """Places, room, and the checkout's disk."""

    def test_place_for_the_environment(self):
        """The place that a build would choose is named with its room."""
        found = storage.environment(fake.facts())
        assert found.status == "ok"
        assert "100.0 GiB free" in found.detail

    def test_no_place_fails_with_each_reason(self):
        """Every place that will not do is told with its reason."""
        full = Candidate(Path("/s"), "state folder", fake.disk("/s", free=GIB))
        found = storage.environment(fake.facts(survey=fake.survey(candidates=(full,))))
        assert (found.status, "no space" in found.detail) == ("fail", True)
        assert "ONECAT_LOCAL_ROOT" in found.hint

    def test_a_venv_of_the_users_own_is_left(self):
        """A real directory at .venv is told, with the way to make room for the link."""
        checkout = replace(fake.survey().checkout, link=Link("directory"))
        found = storage.environment(fake.facts(survey=fake.survey(checkout=checkout)))
        assert (found.status, "of yours" in found.detail) == ("warn", True)
        assert found.hint

    def test_cache_lies_with_the_environment(self):
        """Without UV_CACHE_DIR there is no second place."""
        assert storage.space_cache(fake.facts()).status == "skip"

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({}, "ok"),
            ({"free": GIB}, "fail"),
            ({"free_inodes": 5}, "warn"),
            ({"hung": True, "problem": "no answer"}, "fail"),
        ],
    )
    def test_room_for_the_users_cache(self, change, status):
        """A cache of the user's own needs room of its own."""
        facts = fake.facts(
            {"UV_CACHE_DIR": "/cache"}, disk=lambda path: fake.disk(path, **change)
        )
        assert storage.space_cache(facts).status == status

    @pytest.mark.parametrize(("free", "status"), [(50 * GIB, "ok"), (GIB, "fail")])
    def test_room_for_the_build(self, free, status):
        """Objects and sources go to the checkout's disk."""
        seen = fake.survey(checkout_disk=fake.disk(free=free))
        assert storage.space_build(fake.facts(survey=seen)).status == status

    @pytest.mark.parametrize(
        ("change", "status", "workaround"),
        [
            ({}, "ok", ""),
            ({"rates": fake.NAS}, "warn", "environment on a local disk"),
            ({"fs": "nfs4"}, "warn", "environment on a local disk"),
            ({"rates": None}, "unknown", ""),
            ({"rates": None, "problem": "Read-only file system"}, "fail", ""),
        ],
    )
    def test_the_checkouts_disk(self, change, status, workaround):
        """Slow or network is a work-round, not writable is a failure."""
        seen = fake.survey(checkout_disk=fake.disk(**change))
        found = storage.checkout_disk(fake.facts(survey=seen))
        assert (found.status, found.workaround) == (status, workaround)

    @pytest.mark.parametrize("statistics", [(), ("device nas:/x mounted on /mnt",)])
    def test_hanging_disk_names_the_mount(self, statistics):
        """A stuck NFS mount is named with its statistics."""

        def hang(question):
            raise Hung("/mnt", fake.mount("nfs4", "/mnt", "nas:/x"), 15, statistics)

        found = storage.checkout_disk(fake.facts(disks=hang))
        assert (found.status, found.hint) == ("fail", "ping nas")
        assert all(line in found.detail for line in statistics)

    @pytest.mark.parametrize(("uid", "status"), [(fake.UID, "ok"), (0, "warn")])
    def test_owner_of_the_checkout(self, uid, status):
        """A checkout of somebody else's is worked round as git needs it."""
        found = storage.checkout_owner(fake.facts(survey=fake.survey(uid=uid)))
        assert found.status == status
        assert bool(found.workaround) == (status == "warn")


class TestNetwork:
    """Proxies."""

    @pytest.mark.parametrize(
        ("env", "status"),
        [
            ({}, "ok"),
            ({"https_proxy": "http://p:1", "NO_PROXY": "localhost,127.0.0.1"}, "ok"),
            ({"https_proxy": "http://p:1"}, "warn"),
        ],
    )
    def test_requests_to_this_machine(self, env, status):
        """A proxy must not stand between a server here and its health check."""
        assert network.proxy(fake.facts(env)).status == status

    def test_hint_keeps_what_the_user_has(self):
        """The names already in NO_PROXY stay, and no password is shown."""
        env = {"https_proxy": "http://me:secret@p:1", "NO_PROXY": "nas"}
        found = network.proxy(fake.facts(env))
        assert found.hint.startswith("export NO_PROXY=nas,localhost,127.0.0.1")
        assert "secret" not in str(found)


class TestEnvironment:
    """Leftovers in the environment."""

    def test_stub_on_the_library_path(self):
        """A stub of libcuda is named, and the rest of the path is kept in the hint."""
        stub = Path("/opt/cuda/lib64/stubs/libcuda.so")
        env = {"LD_LIBRARY_PATH": "/opt/cuda/lib64/stubs/:/opt/x:"}
        found = environment.libcuda_stub(fake.facts(env, stubs=lambda env: [stub]))
        assert (found.status, found.hint) == ("warn", "export LD_LIBRARY_PATH=/opt/x")
        env = {"LD_LIBRARY_PATH": "/opt/cuda/lib64/stubs"}
        found = environment.libcuda_stub(fake.facts(env, stubs=lambda env: [stub]))
        assert found.hint == "unset LD_LIBRARY_PATH"
        assert environment.libcuda_stub(fake.facts()).status == "ok"

    @pytest.mark.parametrize(
        ("version", "sms", "status"),
        [
            ("9.10.2.21", (70,), "ok"),
            ("9.11.0", (70,), "warn"),
            ("9.12.0", (80,), "ok"),
            ("8.9.7", (70,), "ok"),
        ],
    )
    def test_cudnn_for_volta(self, version, sms, status):
        """CuDNN 9.11 needs sm_75; 9.10 is the last for Volta."""
        copies = [Cudnn(version, Path("/usr/lib/libcudnn.so.9"))]
        facts = fake.facts(
            cudnn=lambda env, venv: copies, profile=fake.profile(sms=sms)
        )
        assert environment.cudnn(facts).status == status

    def test_no_cudnn_is_skipped(self):
        """Torch brings its own."""
        assert environment.cudnn(fake.facts()).status == "skip"

    @pytest.mark.parametrize(
        ("env", "text", "status", "word"),
        [
            ({}, None, "ok", "none set"),
            ({"VLLM_USE_V1": "1"}, None, "warn", "VLLM_USE_V1"),
            ({"VLLM_LOGGING_LEVEL": "DEBUG"}, None, "ok", "VLLM_LOGGING_LEVEL"),
            ({"VLLM_USE_V1": "1"}, '    "VLLM_USE_V1": lambda: 1,\n', "ok", "USE_V1"),
            (
                {"VLLM_MINE": "1"},
                '    "VLLM_USE_V1": lambda: 1,\n',
                "warn",
                "VLLM_MINE",
            ),
        ],
    )
    def test_dead_variables(self, env, text, status, word):
        """The checkout's own list goes before the table."""
        found = environment.vllm_variables(
            fake.facts(env, text=lambda path: (text, ""))
        )
        assert (found.status, word in found.detail) == (status, True)

    def test_dead_variables_are_unset_together(self):
        """One command takes them all away."""
        env = {"VLLM_DEBUG": "1", "VLLM_ATTENTION_BACKEND": "X"}
        found = environment.vllm_variables(fake.facts(env))
        assert found.hint == "unset VLLM_ATTENTION_BACKEND VLLM_DEBUG"
        assert "VLLM_LOGGING_LEVEL=DEBUG" in found.detail


class TestFacts:
    """Where the facts look."""

    def test_state_folder_is_given_set_or_remembered(self, tmp_path):
        """The folder of the caller comes first, then the setting, then memory."""
        given = fake.facts(root=StateRoot(tmp_path))
        assert given.state.path == tmp_path
        chosen = fake.facts(settings=fake.settings(local_root=tmp_path / "x"))
        assert chosen.state.path == tmp_path / "x"
        before = fake.facts(chosen_root=lambda env: tmp_path / "y")
        assert before.state.path == tmp_path / "y"
        assert fake.facts().state is None

    def test_brought_toolkits_are_looked_for_in_it(self, tmp_path):
        """A toolkit that was brought earlier is found again."""
        asked = []
        facts = fake.facts(
            root=StateRoot(tmp_path),
            toolkits=lambda env, folder: asked.append(folder) or [fake.toolkit()],
        )
        assert facts.release == "12.4"
        assert asked == [tmp_path / "toolkits"]

    def test_release_of_what_would_be_brought(self):
        """A recipe's release counts, and no release is an empty one."""
        facts = fake.facts(toolkits=lambda env, folder: [])
        assert facts.release == "12.4"
        facts = fake.facts(
            toolkits=lambda env, folder: [], recipes=lambda owner, parts: []
        )
        assert facts.release == ""
