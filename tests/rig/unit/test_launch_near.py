# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Errors name the files that people know."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base import near
from tools.rig.base.launch_near import known
from tools.rig.builds import compile_cache
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.work_folder import WorkFolder


@pytest.fixture
def told(tmp_path: Path) -> tuple[dict[str, str], str]:
    """Return what a build says of its links, and where a compile of it runs."""
    home = tmp_path / "work"
    cwd = home / "build" / "temp"
    cwd.mkdir(parents=True)
    link = str(home / "near" / "src")
    lines = [str(home), "/my checkout", link, "/real/checkout", link]
    return {"RIG_NEAR": "\n".join(lines)}, str(cwd)


def test_paths(told: tuple[dict[str, str], str]) -> None:
    """The way over the link becomes the path as it was typed; the rest stays."""
    text = b"../../near/src/csrc/x.cu(3): error\nIn file ../../near/other/y.h\n"
    want = b"/my checkout/csrc/x.cu(3): error\nIn file ../../near/other/y.h\n"
    assert known(text, *told) == want


@pytest.mark.parametrize("near", ["", "/work", "/work\n/my checkout"])
def test_nothing_told(near: str, tmp_path: Path) -> None:
    """Without a table, or with a broken one, words stay as they are."""
    text = b"../../near/src/x.cu: error"
    assert known(text, {"RIG_NEAR": near}, str(tmp_path)) == text


def test_nothing_to_do(told: tuple[dict[str, str], str]) -> None:
    """Words without such a path are not touched."""
    assert known(b"plain", *told) == b"plain"


def test_as_the_build_tells_it(tmp_path: Path) -> None:
    """What the build says of its links is what is read here, and by the cache."""
    home = tmp_path / "work"
    links = {tmp_path / "src": home / "near" / "src"}
    work = WorkFolder(tmp_path / "src", home, links, {})
    env = compile_cache.environment(CompileCache("ccache", "/bin/ccache"), {}, work)
    cwd = home / "build"
    cwd.mkdir(parents=True)
    source = str(tmp_path / "src" / "x.cu")
    argv, _ = near.command(["nvcc", "-c", source], env, str(cwd))
    said = f"{argv[-1]}(3): error".encode()
    assert argv[-1] == "../near/src/x.cu"
    assert known(said, env, str(cwd)) == f"{source}(3): error".encode()
