# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading ninja's own log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.rig.builds import ninja_log
from tools.rig.builds.ninja_log import Step

LINES = "0\t1500\t17\ta.o\tabc\n20\t900\t18\tb.o\tdef\n1500\t1600\t19\tlib.so\t123\n"


def read(folder: Path, text: str) -> list[Step]:
    """Write and read a log."""
    (folder / ".ninja_log").write_text(text, encoding="utf-8")
    return ninja_log.read(folder / ".ninja_log")


@pytest.mark.parametrize("version", [5, 6, 7])
def test_formats(tmp_path: Path, version: int) -> None:
    """All formats are read alike; steps come in the order in which they ended."""
    found = read(tmp_path, f"# ninja log v{version}\n{LINES}")
    assert found == [
        Step("b.o", 0.02, 0.9),
        Step("a.o", 0.0, 1.5),
        Step("lib.so", 1.5, 1.6),
    ]
    assert found[0].seconds == pytest.approx(0.88)


def test_newest_entry_of_an_output(tmp_path: Path) -> None:
    """What was built again counts once, as it was last."""
    found = read(tmp_path, f"# ninja log v5\n{LINES}5\t7\t20\ta.o\tabc\n")
    assert [s.output for s in found] == ["a.o", "b.o", "lib.so"]
    assert found[0] == Step("a.o", 0.005, 0.007)


@pytest.mark.parametrize(
    "tail", ["12\t34", "12\t34\t5\tc.o", "x\t1\t1\tc.o\th", "1\tx\t1\tc.o\th", "\0\0\0"]
)
def test_cut_short(tmp_path: Path, tail: str) -> None:
    """A line that a kill cut off is passed over, the others are not."""
    assert len(read(tmp_path, f"# ninja log v6\n{LINES}{tail}")) == 3


def test_odd_names(tmp_path: Path) -> None:
    """Blanks and separators other than a newline belong to a name."""
    found = read(tmp_path, "# ninja log v7\n0\t1\t2\ta b\u2028c\x0c.o\th\n")
    assert [s.output for s in found] == ["a b\u2028c\x0c.o"]


@pytest.mark.parametrize("text", ["", "# ninja log v4\n", "# ninja log v8\n", "x\ny\n"])
def test_unknown(tmp_path: Path, text: str) -> None:
    """A format that is not known gives nothing."""
    assert read(tmp_path, text and text + LINES) == []


def test_missing(tmp_path: Path) -> None:
    """So does a file that is not there, or is a folder."""
    assert ninja_log.read(tmp_path / "none") == []
    assert ninja_log.read(tmp_path) == []


def test_of_checkout(tmp_path: Path) -> None:
    """All ninjas of a build count, and of several Pythons' the one that ran last."""
    places = [
        "build/temp.x-312",
        "build/temp.x-312/ext",
        "other/build/temp.x-312",
        "build/temp.x-310",
    ]
    for age, place in enumerate(places):
        file = tmp_path / place / ".ninja_log"
        file.parent.mkdir(parents=True)
        output = f"{tmp_path}/{place}/{age}.o"
        file.write_text(f"# ninja log v6\n0\t1500\t0\t{output}\tff\n")
        os.utime(file, (1_000 - age, 1_000 - age))
    found = ninja_log.of_checkout(tmp_path)
    assert [ninja_log.short(step.output, tmp_path) for step in found] == [
        "build/temp.x-312/0.o",
        "other/build/temp.x-312/2.o",
        "build/temp.x-312/ext/1.o",
    ]
    assert ninja_log.of_checkout(tmp_path / "other/build") == []
