# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the loader would find, told without loading anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import elf_file
from tools.rig.host import linkage
from tools.rig.host.linkage import Links, Process


@pytest.fixture(autouse=True)
def no_system_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into no folder of this machine: it may have a driver, or not."""
    monkeypatch.setattr(linkage, "_USUAL", ())


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """Return a Python that needs a C library, which only the cache knows."""
    libc = elf_file.write(tmp_path / "sys/libc.x", soname="libc.x", defined=["malloc"])
    exe = elf_file.write(
        tmp_path / "venv/bin/python", needed=["libc.x"], defined=["PyModule_Create2"]
    )
    return Process(exe, cache={"libc.x": (libc,)})


class TestSearch:
    """Libraries are found where ld.so looks, in its order."""

    def test_symbols_of_the_interpreter_and_of_dependencies(
        self, tmp_path: Path, process: Process
    ) -> None:
        """A symbol may come from Python itself or from the end of a chain."""
        elf_file.write(tmp_path / "x/libtwo.x", defined=["two"])
        elf_file.write(tmp_path / "x/libone.x", needed=["libtwo.x"], runpath="$ORIGIN")
        library = elf_file.write(
            tmp_path / "x/a.so",
            needed=["libone.x", "libc.x"],
            runpath="${ORIGIN}",
            undefined=["PyModule_Create2", "two", "malloc"],
        )
        assert linkage.check(library, process) == Links()

    def test_folders_of_earlier_imports(self, tmp_path: Path, process: Process) -> None:
        """What torch has loaded is found by name, without any RPATH."""
        elf_file.write(tmp_path / "torch/lib/libtorch.x", defined=["at"])
        library = elf_file.write(
            tmp_path / "a.so", needed=["libtorch.x"], undefined=["at"]
        )
        assert linkage.check(library, process).missing == ("libtorch.x",)
        there = dataclasses.replace(process, folders=(tmp_path / "torch/lib",))
        assert linkage.check(library, there).ok

    def test_preloaded_for_all_to_see(self, tmp_path: Path, process: Process) -> None:
        """A library that was loaded globally lends its symbols without being needed."""
        deps = elf_file.write(tmp_path / "libglobal.x", defined=["cublasCreate"])
        library = elf_file.write(tmp_path / "a.so", undefined=["cublasCreate"])
        assert linkage.check(library, process).unresolved == ("cublasCreate",)
        early = dataclasses.replace(process, preloaded=(deps,))
        assert linkage.check(library, early).ok

    def test_rpath_reaches_down_and_runpath_does_not(
        self, tmp_path: Path, process: Process
    ) -> None:
        """An RPATH serves the dependencies of dependencies, a RUNPATH only its own."""
        elf_file.write(tmp_path / "far/libtwo.x")
        elf_file.write(tmp_path / "near/libone.x", needed=["libtwo.x"])
        paths = f"{tmp_path}/near:{tmp_path}/far"
        old = elf_file.write(tmp_path / "old.so", needed=["libone.x"], rpath=paths)
        new = elf_file.write(tmp_path / "new.so", needed=["libone.x"], runpath=paths)
        assert linkage.check(old, process).ok
        assert linkage.check(new, process).missing == ("libtwo.x",)

    def test_ld_library_path(self, tmp_path: Path, process: Process) -> None:
        """LD_LIBRARY_PATH is searched, empty entries and all."""
        elf_file.write(tmp_path / "ll/libone.x")
        library = elf_file.write(tmp_path / "a.so", needed=["libone.x"])
        there = dataclasses.replace(process, search=f":{tmp_path}/ll")
        assert linkage.check(library, there).ok

    def test_a_need_with_a_path(self, tmp_path: Path, process: Process) -> None:
        """A need that is a path is taken as it is."""
        one = elf_file.write(tmp_path / "libone.x", defined=["one"])
        library = elf_file.write(
            tmp_path / "a.so", needed=[str(one)], undefined=["one"]
        )
        assert linkage.check(library, process).ok

    def test_another_machine_is_passed_over(
        self, tmp_path: Path, process: Process
    ) -> None:
        """A library for another processor does not satisfy a need."""
        elf_file.write(tmp_path / "one/libone.x", machine=183)
        elf_file.write(tmp_path / "two/libone.x")
        paths = f"{tmp_path}/one:{tmp_path}/two"
        library = elf_file.write(tmp_path / "a.so", needed=["libone.x"], runpath=paths)
        assert linkage.check(library, process).ok


class TestTrouble:
    """What the loader would complain of."""

    def test_the_driver_is_not_here(self, tmp_path: Path, process: Process) -> None:
        """Only the driver's own symbols are excused, and they are counted."""
        library = elf_file.write(
            tmp_path / "a.so",
            needed=["libcuda.so.1"],
            undefined=["cuMemCreate", "cudaFree", "malloc"],
        )
        links = linkage.check(library, process)
        assert links.driver == ("libcuda.so.1",)
        assert links.unresolved == ("cudaFree",)
        assert links.assumed == 1
        assert links.missing == ()
        assert not links.ok

    def test_driver_symbols_without_the_need(
        self, tmp_path: Path, process: Process
    ) -> None:
        """A library that forgot to link the driver is not excused."""
        library = elf_file.write(tmp_path / "a.so", undefined=["cuMemCreate"])
        assert linkage.check(library, process).unresolved == ("cuMemCreate",)

    def test_a_version_that_is_too_new(self, tmp_path: Path, process: Process) -> None:
        """A wheel from a newer system wants versions that this one lacks."""
        elf_file.write(tmp_path / "libv.x", soname="libv.x", gives=["V_1"])
        library = elf_file.write(
            tmp_path / "a.so",
            needed=["libv.x"],
            runpath="$ORIGIN",
            wants={"libv.x": ["V_1", "V_2"]},
        )
        assert linkage.check(library, process).unresolved == ("version V_2 of libv.x",)

    def test_what_the_interpreter_lacks_is_not_blamed(
        self, tmp_path: Path, process: Process
    ) -> None:
        """Only the library's own needs count."""
        exe = elf_file.write(tmp_path / "py", needed=["libodd.x"])
        library = elf_file.write(tmp_path / "a.so")
        assert linkage.check(library, Process(exe)).ok

    def test_unreadable_files(self, tmp_path: Path, process: Process) -> None:
        """A broken library, dependency or early library is named."""
        broken = tmp_path / "libone.x"
        broken.write_text("x" * 100)
        library = elf_file.write(
            tmp_path / "a.so", needed=["libone.x"], runpath="$ORIGIN"
        )
        assert "not an ELF file" in linkage.check(library, process).problem
        assert "not an ELF file" in linkage.check(broken, process).problem
        assert "No such file" in linkage.check(tmp_path / "no.so", process).problem
        early = dataclasses.replace(process, preloaded=(broken,))
        whole = elf_file.write(tmp_path / "b.so")
        assert linkage.check(whole, early).problem.startswith("libone.x: not an ELF")

    def test_another_processor(self, tmp_path: Path, process: Process) -> None:
        """A wheel for another processor is told by its library."""
        library = elf_file.write(tmp_path / "a.so", machine=183)
        problem = linkage.check(library, process).problem
        assert problem == "made for another processor than this Python"


class TestLoaderCache:
    """The list that ldconfig prints."""

    def test_every_file_of_a_name(self, fp: FakeProcess) -> None:
        """Files of one name keep their order, other lines are passed over."""
        fp.register(
            ["ldconfig", "-p"],
            stdout="2 libs found in cache `/etc/ld.so.cache'\n"
            "\tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1\n"
            "\tlibz.so.1 (libc6) => /lib/i386-linux-gnu/libz.so.1\n",
        )
        assert linkage.loader_cache({"PATH": "/bin"}) == {
            "libz.so.1": (
                Path("/lib/x86_64-linux-gnu/libz.so.1"),
                Path("/lib/i386-linux-gnu/libz.so.1"),
            )
        }

    def test_no_ldconfig(self, fp: FakeProcess) -> None:
        """Without an answer the cache is empty."""
        fp.register(["ldconfig", "-p"], returncode=1)
        assert linkage.loader_cache({}) == {}
