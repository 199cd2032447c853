# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The variables by which every build tool finds the toolkit and the compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.rig.support.fakecuda import compiler, program
from tools.rig.steps import toolkit as step


class TestPairEnv:
    """What every build tool reads."""

    def test_all(self, tmp_path: Path) -> None:
        """A compiler that is not the default is told to all of them."""
        env = {"PATH": str(tmp_path), "NVCC_PREPEND_FLAGS": "-O3"}
        assert step.pair_env(Path("/cuda"), compiler("g++-13", "13.3"), env) == {
            "CUDA_HOME": "/cuda",
            "CUDA_PATH": "/cuda",
            "CUDACXX": "/cuda/bin/nvcc",
            "PATH": f"/cuda/bin:{tmp_path}",
            "NVCC_CCBIN": "/usr/bin/g++-13",
            "NVCC_PREPEND_FLAGS": "-ccbin=/usr/bin/g++-13 -O3",
            "CUDAHOSTCXX": "/usr/bin/g++-13",
            "CXX": "/usr/bin/g++-13",
        }

    def test_no_compiler_yet(self) -> None:
        """Before one is chosen none is told."""
        found = step.pair_env(Path("/cuda"), None, {"PATH": "/bin"})
        assert set(found) == {"CUDA_HOME", "CUDA_PATH", "CUDACXX", "PATH"}

    def test_the_default_compiler(self, tmp_path: Path) -> None:
        """The default compiler needs no CXX."""
        real = program(tmp_path / "g++-12")
        (tmp_path / "c++").symlink_to(real)
        host = replace(compiler("g++", "12.2"), path=real)
        found = step.pair_env(Path("/cuda"), host, {"PATH": str(tmp_path)})
        assert "CXX" not in found

    def test_the_users_own(self, tmp_path: Path) -> None:
        """CXX, CUDAHOSTCXX and a -ccbin of the user's stay."""
        mine = program(tmp_path / "g++-13")
        host = replace(compiler("g++", "13.3"), path=mine)
        env = {
            "PATH": str(tmp_path),
            "CXX": "clang++",
            "CUDAHOSTCXX": "g++-13",
            "NVCC_PREPEND_FLAGS": "-ccbin g++-13",
        }
        found = step.pair_env(Path("/cuda"), host, env)
        assert not {"CXX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS"} & set(found)

    def test_a_blank(self) -> None:
        """The plan shows the link that a path with a blank will get."""
        host = replace(compiler("g++-13", "13.3"), path=Path("/a b/g++-13"))
        found = step.pair_env(Path("/cuda"), host, {"PATH": ""})
        assert " " not in found["NVCC_PREPEND_FLAGS"]
        assert found["NVCC_CCBIN"].endswith("/g++-13")
