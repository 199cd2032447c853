# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Errors name the files that people know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.rig.base.launch_near import known


@pytest.fixture
def told(tmp_path: Path) -> tuple[dict[str, str], str]:
    """Return what a build says of its links, and where a compile of it runs."""
    home = tmp_path / "work"
    cwd = home / "build" / "temp"
    cwd.mkdir(parents=True)
    link = str(home / "near" / "src")
    pairs = [["/my checkout", link], ["/real/checkout", link]]
    return {"RIG_NEAR": json.dumps({"home": str(home), "near": pairs})}, str(cwd)


def test_paths(told: tuple[dict[str, str], str]) -> None:
    """The way over the link becomes the path as it was typed; the rest stays."""
    text = b"../../near/src/csrc/x.cu(3): error\nIn file ../../near/other/y.h\n"
    want = b"/my checkout/csrc/x.cu(3): error\nIn file ../../near/other/y.h\n"
    assert known(text, *told) == want


@pytest.mark.parametrize("near", ["", "{", "[]", '{"near": 7}', '{"near": [[1]]}'])
def test_nothing_told(near: str, tmp_path: Path) -> None:
    """Without a table, or with a broken one, words stay as they are."""
    text = b"../../near/src/x.cu: error"
    assert known(text, {"RIG_NEAR": near}, str(tmp_path)) == text


def test_nothing_to_do(told: tuple[dict[str, str], str]) -> None:
    """Words without such a path are not touched."""
    assert known(b"plain", *told) == b"plain"
