# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Paths that no build can succeed in are told beforehand, all others are welcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base.errors import UsageError
from tools.rig.builds import names

PLAIN = Path("/src/fork")


@pytest.mark.parametrize(
    "name", ["a b", "it's", "ü 中", "(x)", "a&b", "~e", "%f", "+-="]
)
def test_welcome(name: str) -> None:
    """Blanks, single quotes, letters of any script and most signs do no harm."""
    names.check(PLAIN / name, PLAIN / name)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ('a"b', "CMake"),
        ("a\\b", "CMake"),
        ("a;b", "CMake"),
        ("a|b", "CMake"),
        ("a[b]", "CMake"),
        ("a<b>", "CMake"),
        ("a{b}", "setuptools"),
        ("a#b", "uv"),
        ("a$b", "nvcc"),
        ("a`b", "nvcc"),
    ],
)
def test_refused(name: str, tool: str) -> None:
    """The sign and whom it stops are named, with something to type."""
    with pytest.raises(UsageError, match=f"with which {tool} cannot work") as caught:
        names.check(PLAIN / name, PLAIN)
    assert caught.value.hint.startswith("mv ")
    with pytest.raises(UsageError, match=f"with which {tool} cannot work") as caught:
        names.check(PLAIN, PLAIN / name)
    assert "ONECAT_LOCAL_ROOT" in caught.value.hint


@pytest.mark.parametrize(("name", "tool"), [("a:b", "PATH"), ("a,b", "nvcc")])
def test_refused_for_the_root(name: str, tool: str) -> None:
    """The state root is on PATH, and temporary files of nvcc lie in it."""
    names.check(PLAIN / name, PLAIN)
    with pytest.raises(UsageError, match=tool):
        names.check(PLAIN, PLAIN / name)
