# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How a running build looks on any terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.rig.base.console import cells
from tools.rig.builds.frame import (
    Compile,
    View,
    about,
    holders,
    lines,
    plain,
    shown,
    tail,
)

GIB = 1 << 30
MARLIN = "CMakeFiles/_moe_C.dir/csrc/moe/marlin_moe_wna16/sm70_marlin_u8b128_gemm.cu.o"
VIEW = View(
    done=57,
    total=102,
    took_s=725,
    left_s=2460,
    last="CMakeFiles/_C.dir/csrc/a.cu.o",
    running=(
        Compile("CMakeFiles/_C.dir/csrc/topk.cu.o", 4, 215 << 20),
        Compile(MARLIN, 612, int(3.46 * GIB)),
    ),
    waiting=14,
    used=int(9.9 * GIB),
    budget=22 * GIB,
    hits=12,
    compiled=57,
)


def test_80_columns() -> None:
    """On a usual terminal everything is there, the longest compile first."""
    assert shown(lines(VIEW, 80, 24)) == [
        "  ━━━━━━━━━━━━━━━━━─────────────  57/102  12 min 5 s, about 41 min left",
        "  memory 9.9 of 22.0 GiB  2 running  14 waiting  12 of 57 from the cache",
        "  10:12   3.5 GiB  …/csrc/moe/marlin_moe_wna16/sm70_marlin_u8b128_gemm.cu",
        "   0:04   215 MiB  _C.dir/csrc/topk.cu",
    ]


def test_40_columns() -> None:
    """On a narrow one what tells most stays."""
    assert shown(lines(VIEW, 40, 24)) == [
        "  ━━━━━━────  57/102  about 41 min left",
        "  9.9/22.0 GiB  2 run  14 wait",
        "  10:12   3.5 GiB  …rlin_u8b128_gemm.cu",
        "   0:04   215 MiB  _C.dir/csrc/topk.cu",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "gbk"])
@pytest.mark.parametrize("height", [1, 4, 5, 7, 40])
def test_fits(encoding: str, height: int) -> None:
    """No line is wider than the terminal, none too many, none that it cannot show."""
    many = tuple(Compile(f"d/我们的/{'é' * n}.cu.o", n) for n in range(30))
    for view in (VIEW, replace(VIEW, running=many), replace(VIEW, running=None)):
        for width in range(1, 130):
            found = shown(lines(view, width, height, encoding))
            assert 1 <= len(found) <= height
            for line in found:
                assert cells(line) <= max(1, width - 1)
                line.encode(encoding)


def test_many() -> None:
    """What does not fit is counted."""
    many = tuple(Compile(f"{n}.o", n) for n in range(30))
    found = shown(lines(replace(VIEW, running=many), 80, 50))
    assert len(found) == 2 + 12
    assert found[2].endswith("29") and found[-1] == "  and 19 more"


def test_nothing_is_known() -> None:
    """Without a status and without an estimate the count is there."""
    view = View(done=3, total=9, took_s=31, last="a/b.cu.o")
    assert shown(lines(view, 80, 24)) == [
        "  ━━━━━━━━━━────────────────────  3/9  31 s",
        "  a/b.cu",
    ]
    assert plain(view) == "  [3/9] b.cu (31 s)"
    assert shown(lines(View(0, 0, 2), 80, 24)) == ["  nothing compiled yet (2.0 s)"]


def test_plain() -> None:
    """A log has the same in one line."""
    assert plain(VIEW) == (
        "  [57/102] 12 min 5 s, about 41 min left; memory 9.9 of 22.0 GiB; 2 running; "
        "14 waiting; 12 of 57 from the cache; "
        "longest sm70_marlin_u8b128_gemm.cu 10 min 12 s, topk.cu 4.0 s"
    )
    assert plain(replace(VIEW, running=(), done=102)).endswith("57 from the cache")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "5 s"),
        (41, "40 s"),
        (89, "90 s"),
        (91, "2 min"),
        (3569, "59 min"),
        (3571, "1 h 0 min"),
        (7250, "2 h 0 min"),
        (5000, "1 h 25 min"),
    ],
)
def test_about(seconds: float, said: str) -> None:
    """A time that is not known to the second is not said to the second."""
    assert about(seconds) == said


def test_names_obey_nobody() -> None:
    """A name cannot move the cursor, and cannot show a secret."""
    assert tail("a\x1b[2Jb\nc.o", 80) == "a?[2Jb?c"
    assert "hunter2" not in tail("x/API_TOKEN=hunter2", 80)


def test_holders() -> None:
    """Each build that has the room is named once, as far as it is told."""
    status = [{"build": "a\x1b", "pid": 7}, {"build": "a\x1b", "pid": 7}, {}]
    assert holders(status, 3) == (
        "waiting: build a? (PID 7) holds 2 of 3 places, "
        "another build holds 1 of 3 places"
    )
    assert holders([{"build": "a", "pid": "x"}], None) == (
        "waiting: build a holds 1 place"
    )
    assert holders([], 2) == ""


def test_held() -> None:
    """Who holds the room stands below the facts, and in a plain line."""
    held = replace(VIEW, running=(), held="waiting: build x holds 2 of 2 places")
    assert shown(lines(held, 80, 24))[2] == "  waiting: build x holds 2 of 2 places"
    assert plain(held).endswith("14 waiting; 12 of 57 from the cache; " + held.held)
    early = plain(replace(held, total=0, left_s=None))
    assert early.startswith("  nothing compiled yet, 12 min 5 s; memory ")
