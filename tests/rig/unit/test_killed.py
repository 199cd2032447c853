# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Compilers that were killed, and those that only failed."""

from __future__ import annotations

import pytest

from tools.rig.base.killed import refusal, was_killed
from tools.rig.base.process import Result


def result(code: int, err: str = "", *, timed_out: bool = False) -> Result:
    """Return the end of an nvcc."""
    return Result(("nvcc",), code, "", err, 1.0, timed_out)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, ""),
        (137, "Killed\n"),
        (2, "/bin/sh: line 1:   975 Killed                  cicc --c++17\n"),
        (1, "nvcc error   : 'cudafe++' died due to signal 9 (Kill signal)\n"),
        (1, "g++: fatal error: Killed signal terminated program cc1plus\n"),
        (254, "clang: error: unable to execute command: Killed\n"),
    ],
)
def test_killed(code: int, said: str) -> None:
    """A signal 9 is recognised, also of a part and in the words of its driver."""
    assert was_killed(result(code, said))


@pytest.mark.parametrize(
    "ended",
    [
        result(0, "Killed\n"),
        result(2, "x.cu(3): error: expected a ;\n"),
        result(1, "nvcc error   : 'cicc' died due to signal 11\n"),
        result(1, 'x.cu(3): error: identifier "Killed" is undefined\n'),
        result(-9, timed_out=True),
    ],
)
def test_not_killed(ended: Result) -> None:
    """What failed by itself, or was ended by us after its time, was not killed."""
    assert not was_killed(ended)


def test_refusal() -> None:
    """It is said what was killed and that memory is to be looked at."""
    error = refusal("/k/nvcc", "compiling x", "a\n\nKilled\n")
    assert error.what == "/k/nvcc was killed (signal 9) while compiling x"
    assert list(error.details) == ["Killed"]
    assert list(refusal("x", "y", "a\n\nb\n").details) == ["a", "b"]
    assert "memory ran out" in error.usual and error.hint.startswith("free -h")
