# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A real nvcc's libraries, listed by its own cuobjdump."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.rig.support.toolkit import sm70_toolkit
from tools.rig.base import run
from tools.rig.host import cubins, cuda
from tools.rig.host.cubins import Content

pytestmark = pytest.mark.real

KERNEL = "__global__ void twice(int* x) { x[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def toolkit() -> cuda.Toolkit:
    """Return a toolkit that can emit sm_70."""
    return sm70_toolkit()


def compile_(toolkit: cuda.Toolkit, folder: Path, *flags: str) -> Path:
    """Compile the kernel into a shared library without cudart."""
    source = folder / "k.cu"
    source.write_text(KERNEL)
    library = folder / "libk.so"
    argv = [toolkit.nvcc, "-shared", "-Xcompiler", "-fPIC", "--cudart=shared", *flags]
    run.run([*argv, "-o", library, source], cwd=folder, check=True, timeout=120)
    return library


@pytest.mark.parametrize(
    ("code", "sass", "ptx"),
    [
        ("arch=compute_70,code=sm_70", (70,), ()),
        ("arch=compute_70,code=[sm_70,compute_70]", (70,), (70,)),
        ("arch=compute_70,code=compute_70", (), (70,)),
        ("arch=compute_80,code=sm_80", (80,), ()),
    ],
    ids=["cubin", "cubin and PTX", "only PTX", "another card"],
)
def test_what_was_asked_for_is_what_is_listed(
    toolkit: cuda.Toolkit,
    tmp_path: Path,
    code: str,
    sass: tuple[int, ...],
    ptx: tuple[int, ...],
) -> None:
    """The listing tells machine code from PTX, and one card from another."""
    library = compile_(toolkit, tmp_path, "-gencode", code)
    content = cubins.read(library, toolkit.cuobjdump)
    assert (content.sass, content.ptx, content.problem) == (sass, ptx, "")
    assert bool(content.cubins) == bool(sass)


def test_no_device_code(toolkit: cuda.Toolkit, tmp_path: Path) -> None:
    """A library of the host's own compiler is empty, and that is no problem."""
    source = tmp_path / "h.cpp"
    source.write_text("int one() { return 1; }\n")
    library = tmp_path / "libh.so"
    run.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    content = cubins.read(library, toolkit.cuobjdump)
    assert content == Content()
    assert content.empty


@pytest.mark.parametrize("share", [0.99, 0.5, 0.01])
def test_a_copy_that_broke_off(
    toolkit: cuda.Toolkit, tmp_path: Path, share: float
) -> None:
    """A file that was cut short is a problem, although cuobjdump calls it empty."""
    library = compile_(toolkit, tmp_path, "-arch=sm_70")
    data = library.read_bytes()
    library.write_bytes(data[: int(len(data) * share)])
    content = cubins.read(library, toolkit.cuobjdump)
    assert "short" in content.problem
    assert content.sass == ()


def test_any_path(toolkit: cuda.Toolkit, tmp_path: Path) -> None:
    """Spaces, quotes and letters of any language in a path change nothing."""
    folder = tmp_path / 'it\'s a "path" $HOME 编译'
    folder.mkdir()
    library = folder / "libk.so"
    shutil.copy(compile_(toolkit, tmp_path, "-arch=sm_70"), library)
    assert cubins.read(library, toolkit.cuobjdump).sass == (70,)


def test_a_cuobjdump_that_hangs(tmp_path: Path) -> None:
    """A tool that does not answer is ended, and named as the problem."""
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\nsleep 300\n")
    tool.chmod(0o755)
    start = time.monotonic()
    content = cubins.read(Path(sys.executable).resolve(), tool, timeout=1)
    assert content.problem == "cuobjdump --list-elf did not answer within 1 s"
    assert time.monotonic() - start < 30
