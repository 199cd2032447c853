# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a person sees of a running build."""

from __future__ import annotations

import io

import pytest

from tools.rig.base.console import Console
from tools.rig.builds.progress import Progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


class Clock:
    """Time that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[3/102] Building CUDA object CMakeFiles/_C.dir/csrc/a.cu.o", "a.cu.o"),
        ("  [3/102] Building CXX object b.cpp.o", "b.cpp.o"),
        ("[3/102] Linking CXX shared module deep/_C.abi3.so", "_C.abi3.so"),
        ("[3/102] /cuda/bin/nvcc -O3 -c /x/k.cu -o /y/k.o -arch=sm_70", "k.o"),
    ],
)
def test_terminal(line: str, shown: str) -> None:
    """A terminal gets one live line with what is being made."""
    screen, clock = Screen(), Clock()
    progress = Progress(Console(screen, {}), clock)
    clock.now = 65
    progress.line(line)
    assert f"[3/102] {shown} (1 min 5 s)" in screen.getvalue()
    assert (progress.done, progress.total) == (3, 102)


def test_plain() -> None:
    """Elsewhere a line comes now and then, and at the end."""
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(out, {}), clock)
    for now, line in (
        (1, "[1/9] Building CXX object a.o"),
        (31, "[2/9] Building CXX object b.o"),
        (32, "[3/9] Building CXX object c.o"),
        (33, "some other output [4/9]"),
        (34, "[9/9] Linking CXX shared module z.so"),
    ):
        clock.now = now
        progress.line(line)
    assert out.getvalue() == "  [2/9] b.o (31 s)\n  [9/9] z.so (34 s)\n"
