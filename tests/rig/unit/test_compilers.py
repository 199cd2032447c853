# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finding host compilers, and what CUDA says to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import ASK_GXX, compiler, gxx, program
from tools.rig.host import compilers
from tools.rig.host.compilers import HostCompiler


class TestProbe:
    """One compiler."""

    def test_gcc(self, fp: FakeProcess, tmp_path: Path) -> None:
        """The macros tell family and version."""
        found = compilers.probe(gxx(fp, tmp_path / "g++", "13 3"))
        assert (found.family, found.version, found.major) == ("gcc", "13.3", 13)
        assert found.describe() == f"g++ 13.3 ({tmp_path}/g++)"
        assert [list(c) for c in fp.calls] == [[str(tmp_path / "g++"), *ASK_GXX]]

    def test_clang(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Clang defines gcc's macros too, so its own are looked at first."""
        path = program(tmp_path / "clang++")
        fp.register([str(path), *ASK_GXX], stdout="17 0\n4 2\n")
        found = compilers.probe(path)
        assert (found.family, found.version) == ("clang", "17.0")
        assert found.describe().startswith("clang++ 17.0")

    @pytest.mark.parametrize(
        ("out", "code", "problem"),
        [
            ("a b\nc d\n", 0, "does not say its version"),
            ("", 0, "does not say its version"),
            ("", 1, "does not run (status 1)"),
        ],
    )
    def test_nonsense(
        self, fp: FakeProcess, tmp_path: Path, out: str, code: int, problem: str
    ) -> None:
        """What is no C++ compiler has a problem and no version."""
        fp.register([str(tmp_path / "g++"), *ASK_GXX], stdout=out, returncode=code)
        found = compilers.probe(tmp_path / "g++")
        assert found.problem == problem and found.major is None
        assert found.describe() == f"{tmp_path}/g++: {problem}"

    @pytest.mark.allow_process
    def test_hangs(self, tmp_path: Path) -> None:
        """A compiler that does not answer is given up after the stated time."""
        path = program(tmp_path / "g++", "#!/bin/sh\nsleep 60\n")
        found = compilers.probe(path, timeout=0.3)
        assert found.problem == "did not answer within 0 s"


class TestUserChoice:
    """What the user wants nvcc to use."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return a folder with two compilers, one of them in a place with a blank."""
        program(tmp_path / "g++-11")
        program(tmp_path / "g++")
        program(tmp_path / "a b" / "g++-12")
        return tmp_path

    def test_nothing(self) -> None:
        """Without any of the variables there is no choice."""
        flags = {"NVCC_PREPEND_FLAGS": "-O3 --threads 2", "NVCC_CCBIN": ""}
        assert compilers.user_choice(flags) is None

    @pytest.mark.parametrize(
        ("variable", "value", "name"),
        [
            ("NVCC_CCBIN", "g++-11", "g++-11"),
            ("CUDAHOSTCXX", "{}/g++-11", "g++-11"),
            ("NVCC_CCBIN", "{}", "g++"),
            ("NVCC_CCBIN", "{}/a b/g++-12", "a b/g++-12"),
            ("NVCC_PREPEND_FLAGS", "-O3 -ccbin {}/g++-11 -v", "g++-11"),
            ("NVCC_PREPEND_FLAGS", "-ccbin=g++-11", "g++-11"),
            ("NVCC_APPEND_FLAGS", "--compiler-bindir={}", "g++"),
            ("NVCC_PREPEND_FLAGS", '-ccbin "{}/a b/g++-12"', "a b/g++-12"),
            ("NVCC_PREPEND_FLAGS", "-ccbin nothing -ccbin g++", "g++"),
        ],
    )
    def test_each_way(self, folder: Path, variable: str, value: str, name: str) -> None:
        """A program, its name, its folder; in any of the variables; the last flag."""
        env = {variable: value.format(folder), "PATH": str(folder)}
        chosen = compilers.user_choice(env)
        assert chosen is not None
        assert (chosen.variable, chosen.path) == (variable, folder / name)

    def test_not_there(self, folder: Path) -> None:
        """A compiler that does not exist is a choice without a path."""
        chosen = compilers.user_choice({"NVCC_CCBIN": "g++-9", "PATH": str(folder)})
        assert chosen == compilers.Choice("NVCC_CCBIN", "g++-9", None)

    def test_flags_win(self, folder: Path) -> None:
        """What nvcc reads last counts."""
        env = {
            "NVCC_CCBIN": "g++",
            "NVCC_PREPEND_FLAGS": "-ccbin g++",
            "NVCC_APPEND_FLAGS": "-ccbin g++-11",
            "PATH": str(folder),
        }
        chosen = compilers.user_choice(env)
        assert chosen is not None and chosen.path == folder / "g++-11"


class TestFind:
    """All compilers of a machine."""

    def test_order(self, fp: FakeProcess, tmp_path: Path) -> None:
        """The user's, CXX, plain names, then numbers from new to old; each one once."""
        for name, version in (("g++-9", "9 4"), ("g++-14", "14 2"), ("g++-11", "11 4")):
            gxx(fp, tmp_path / name, version)
        gxx(fp, tmp_path / "clang++-17")
        (tmp_path / "g++").symlink_to("g++-14")
        (tmp_path / "c++").symlink_to("g++-14")
        fp.register(
            [str(tmp_path / "g++"), *ASK_GXX], stdout="__clang_major__ x\n14 2\n"
        )
        program(tmp_path / "g++-11-wrapper")
        own = gxx(fp, tmp_path / "own" / "mycc", "12 2")
        env = {
            "PATH": f"{tmp_path}:{tmp_path}/none::",
            "NVCC_CCBIN": "g++-11",
            "CXX": str(own),
        }
        found = compilers.find(env)
        names = ["g++-11", "own/mycc", "g++", "clang++-17", "g++-9"]
        assert [c.path for c in found] == [tmp_path / n for n in names]

    def test_launchers_are_looked_through(
        self, fp: FakeProcess, tmp_path: Path
    ) -> None:
        """A cache in front of a compiler is not taken for one."""
        program(tmp_path / "ccache")
        masked = tmp_path / "masked"
        masked.mkdir()
        for name in ("g++", "g++-12"):
            (masked / name).symlink_to("../ccache")
        real = gxx(fp, tmp_path / "bin" / "g++-12")
        env = {"PATH": f"{masked}:{tmp_path}/bin:{tmp_path}", "CXX": "ccache g++-12"}
        (found,) = compilers.find({**env, "PATH": f"{tmp_path}/bin:{tmp_path}"})
        assert found.path == real
        (found,) = compilers.find({**env, "CXX": "ccache"})
        assert found.path == real

    @pytest.mark.parametrize("cxx", ["no-such-compiler", "'unbalanced", "a b c"])
    def test_odd_cxx(self, tmp_path: Path, cxx: str) -> None:
        """A CXX that leads nowhere is passed over."""
        assert compilers.find({"PATH": str(tmp_path), "CXX": cxx}) == []


class TestRefusal:
    """Which compiler a toolkit takes."""

    @pytest.mark.parametrize(
        ("release", "name", "version", "cxx", "words"),
        [
            ("12.4", "g++-13", "13.3", 20, ""),
            ("12.4", "g++-14", "14.2", 20, "CUDA 12.4 takes gcc up to 13"),
            ("12.8", "g++-14", "14.2", 20, ""),
            ("11.8", "g++-11", "11.4", 17, ""),
            ("11.8", "g++-12", "12.2", 17, "CUDA 11.8 takes gcc up to 11"),
            ("12.4", "clang++-17", "17.0", 20, ""),
            ("12.4", "clang++-18", "18.1", 20, "CUDA 12.4 takes clang up to 17"),
            ("12.4", "g++-9", "9.4", 20, "gcc 9 lacks C++20"),
            ("12.4", "g++-9", "9.4", 17, ""),
            ("12.7", "g++-12", "12.2", 17, "no facts about CUDA 12.7"),
        ],
    )
    def test_table(
        self, release: str, name: str, version: str, cxx: int, words: str
    ) -> None:
        """Ceilings are those of host_config.h, by major version."""
        assert compilers.refusal(release, compiler(name, version), cxx) == words

    def test_unknown(self) -> None:
        """A compiler with a problem, or without a version, is refused with it."""
        path = Path("/usr/bin/g++")
        assert compilers.refusal("12.4", HostCompiler(path, "", "", "hangs"), 17) == (
            "hangs"
        )
        assert compilers.refusal("12.4", HostCompiler(path, "gcc", ""), 17) == (
            "version unknown"
        )


def test_clang_takes_the_newest_library(tmp_path: Path) -> None:
    """The C++ library that clang takes may be too new for nvcc to read."""
    for name in ("9", "12", "x"):
        (tmp_path / "x86_64-linux-gnu" / name).mkdir(parents=True)
    assert compilers.newest_gcc(tmp_path) == 12
    assert compilers.newest_gcc(tmp_path / "none") is None
    clang = HostCompiler(Path("/clang++"), "clang", "14.0", library=12)
    assert compilers.refusal("11.8", clang, 17) == (
        "it takes the C++ library of gcc 12, CUDA 11.8 up to 11"
    )
    assert compilers.refusal("12.4", clang, 17) == ""
