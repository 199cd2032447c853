# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The header shim, made by a real nvcc from the headers of real C libraries."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rig.support.glibc_headers import glibc_headers, host_compiler, with_headers
from tests.rig.support.toolkit import sm70_toolkit
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.steps.shim import VARIABLE, ShimResult, shim
from tools.rig.steps.trees import LINK_PLACES, link_for

pytestmark = pytest.mark.real

_CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("NVCC_")}


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    """Return an nvcc that can emit sm_70."""
    return sm70_toolkit()


@pytest.fixture
def trixie(toolkit: Toolkit, tmp_path: Path) -> HostCompiler:
    """Return a g++ that sees glibc 2.41."""
    tree = glibc_headers("trixie")
    return with_headers(host_compiler(toolkit), tree, tmp_path / "trixie-bin")


def make(
    toolkit: Toolkit,
    compiler: HostCompiler,
    folder: Path,
    env: dict[str, str] | None = None,
) -> ShimResult:
    """Run the step with its messages thrown away."""
    return shim(Console(io.StringIO()), toolkit, compiler, env or _CLEAN, folder)


def compile_cu(
    toolkit: Toolkit,
    compiler: HostCompiler,
    source: str,
    work: Path,
    result: ShimResult,
) -> subprocess.CompletedProcess[str]:
    """Compile `source` as a build would, with the variables that the step gave."""
    (work / "one.cu").write_text(source)
    return subprocess.run(
        [toolkit.nvcc, "-ccbin", compiler.path, "-arch=sm_70", "-c", "one.cu"],
        cwd=work,
        env={**_CLEAN, **result.env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_glibc_2_41_gets_exactly_four_functions_off(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """On glibc 2.41 the shadow differs from the system's header in two lines only."""
    result = make(toolkit, trixie, tmp_path / "shims")
    assert result.needed
    assert result.names == ("cospi", "cospif", "sinpi", "sinpif")
    assert result.include is not None
    shadow = (result.include / "bits" / "mathcalls.h").read_text().split("\n")
    head = next(i for i, line in enumerate(shadow) if line.startswith("#line 1 "))
    real = Path(shadow[head].split('"')[1]).read_text().split("\n")
    changed = [
        old for old, new in zip(real, shadow[head + 1 :], strict=True) if old != new
    ]
    assert [line.split("(")[1].split(",")[0] for line in changed] == ["cospi", "sinpi"]


def test_device_and_host_code_can_still_use_the_functions(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """CUDA's own cospi and sinpi stay usable, with every C++ standard."""
    result = make(toolkit, trixie, tmp_path / "shims")
    source = (
        "#include <cmath>\n#include <math.h>\n#include <complex>\n"
        "__global__ void k(double *x) { x[0] = cospi(x[1]) + sinpif(1.0f); }\n"
        "double h(double x) { return tanpi(x) + std::sin(x); }\n"
    )
    done = compile_cu(toolkit, trixie, source, tmp_path, result)
    assert done.returncode == 0, done.stderr


def test_a_second_call_keeps_the_folder(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """Nothing is written again while header, toolkit and compiler are the same."""
    first = make(toolkit, trixie, tmp_path / "shims")
    assert first.include is not None
    before = (first.include / "bits" / "mathcalls.h").stat()
    again = make(toolkit, trixie, tmp_path / "shims")
    after = (first.include / "bits" / "mathcalls.h").stat()
    assert again == first
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_changed_system_header_gets_a_shim_of_its_own(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """A glibc update changes the header, so another folder is made from it."""
    tree = tmp_path / "tree"
    shutil.copytree(glibc_headers("trixie") / "usr/include", tree / "usr/include")
    compiler = with_headers(host_compiler(toolkit), tree, tmp_path / "bin")
    first = make(toolkit, compiler, tmp_path / "shims")
    header = next((tree / "usr/include").glob("*/bits/mathcalls.h"))
    header.write_text("/* an update */\n" + header.read_text())
    second = make(toolkit, compiler, tmp_path / "shims")
    assert second.needed and second.include != first.include
    assert second.include is not None
    assert "an update" in (second.include / "bits" / "mathcalls.h").read_text()


def test_glibc_2_42_and_later_get_rsqrt_off_too(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    """The names come from the compiler, so a newer glibc's further clash is met."""
    tree = glibc_headers("forky")
    compiler = with_headers(host_compiler(toolkit), tree, tmp_path / "bin")
    result = make(toolkit, compiler, tmp_path / "shims")
    assert {"cospi", "sinpif", "rsqrt", "rsqrtf"} <= set(result.names)
    source = "#include <math.h>\n__global__ void k(float *x) { x[0] = rsqrtf(x[1]); }\n"
    done = compile_cu(toolkit, compiler, source, tmp_path, result)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["with blank", "qu'ote \"s, and $", "é 中文"])
def test_a_state_folder_with_an_odd_name_works(
    name: str, toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """The variable never holds a blank of ours, whatever the state root is called."""
    folder = tmp_path / name / "shims"
    try:
        result = make(toolkit, trixie, folder)
        assert len(result.env[VARIABLE].split()) == 1
        done = compile_cu(toolkit, trixie, "#include <math.h>\n", tmp_path, result)
        assert done.returncode == 0, done.stderr
        assert make(toolkit, trixie, folder) == result
    finally:
        for place in LINK_PLACES:
            link = link_for(folder, place)
            link.unlink(missing_ok=True)
            if link.parent.is_dir() and os.listdir(link.parent) == [SENTINEL]:
                shutil.rmtree(link.parent)


def test_the_users_own_flags_stay_behind_ours(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """What the user has in the variable is in force after the shim."""
    env = {**_CLEAN, VARIABLE: "-DRIG_USER=1 -Xcompiler -Wall"}
    result = make(toolkit, trixie, tmp_path / "shims", env)
    assert result.env[VARIABLE] == f"-I{result.include} {env[VARIABLE]}"
    source = "#include <math.h>\n#ifndef RIG_USER\n#error lost\n#endif\n"
    done = compile_cu(toolkit, trixie, source, tmp_path, result)
    assert done.returncode == 0, done.stderr
    nested = make(toolkit, trixie, tmp_path / "shims", {**env, **result.env})
    assert nested == result


def test_cmake_identifies_the_compiler_with_the_shim_only(
    toolkit: Toolkit, trixie: HostCompiler, tmp_path: Path
) -> None:
    """CMake's compiler identification fails on glibc 2.41, and passes with the shim."""
    cmake = shutil.which("cmake")
    if not cmake or not shutil.which("make"):
        pytest.skip("cmake or make is not installed")
    source = tmp_path / "a project"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\n"
        "project(probe LANGUAGES CUDA)\n"
        "add_library(probe OBJECT k.cu)\n"
    )
    (source / "k.cu").write_text(
        "#include <math.h>\n__global__ void k(float *x) { x[0] = sinpif(x[0]); }\n"
    )

    def configure(build: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                cmake,
                "-S",
                source,
                "-B",
                tmp_path / build,
                "-G",
                "Unix Makefiles",
                f"-DCMAKE_CUDA_COMPILER={toolkit.nvcc}",
                f"-DCMAKE_CUDA_HOST_COMPILER={trixie.path}",
                "-DCMAKE_CUDA_ARCHITECTURES=70",
                "-DCMAKE_CUDA_FLAGS=-cudart shared",
            ],
            env={**_CLEAN, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    bare = configure("bare", {})
    assert bare.returncode != 0
    assert "cospi" in bare.stdout + bare.stderr
    result = make(toolkit, trixie, tmp_path / "shims")
    done = configure("with", result.env)
    assert done.returncode == 0, done.stdout + done.stderr
    built = subprocess.run(
        [cmake, "--build", tmp_path / "with"],
        env={**_CLEAN, **result.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def test_another_compile_error_is_shown_and_is_not_ours(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    """A flag that nvcc does not know ends the step with nvcc's own words."""
    env = {**_CLEAN, VARIABLE: "--no-such-flag"}
    with pytest.raises(StepFailed) as caught:
        make(toolkit, host_compiler(toolkit), tmp_path / "shims", env)
    assert any("no-such-flag" in line for line in caught.value.details)
    assert not (tmp_path / "shims").exists()


def test_this_machine_gets_a_shim_only_for_a_new_glibc(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    """With the machine's own headers the answer follows from its glibc."""
    kind, number = platform.libc_ver()
    if kind != "glibc":
        pytest.skip("this machine has no glibc")
    result = make(toolkit, host_compiler(toolkit), tmp_path / "shims")
    new = tuple(map(int, number.split(".")[:2])) >= (2, 41)
    assert result.needed is new
    assert (tmp_path / "shims").exists() is new
