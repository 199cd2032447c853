# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Judging what a library holds and asks for."""

from __future__ import annotations

import json

import pytest

from tools.rig.builds import verdicts
from tools.rig.builds.verdicts import ImportVerdict, LibraryVerdict, VerifyReport
from tools.rig.host.cubins import Content
from tools.rig.host.linkage import Links


@pytest.mark.parametrize(
    ("name", "content", "verdict", "detail"),
    [
        ("p/_C.so", Content((70,), 3), "ok", ""),
        ("p/_C.so", Content((70, 80), 3, (80,)), "ok", ""),
        ("p/_C.so", Content((), 0, (70,)), "ptx only", "holds only PTX (sm_70), no"),
        ("p/_C.so", Content((80,), 1, (70,)), "other architecture", "lacks sm_70, h"),
        ("p/_C.so", Content(), "no code", "holds no GPU code at all"),
        ("p/plain.abi3.so", Content(), "no device code", ""),
        ("p.libs/libx.so.1", Content(), "no device code", ""),
        ("p/plain.abi3.so", Content(problem="hm"), "unknown", "hm"),
        ("p/plain.abi3.so", Content((80,), 1), "other architecture", "lacks sm_70"),
    ],
)
def test_judge(name: str, content: Content, verdict: str, detail: str) -> None:
    """Only a cubin of every wanted architecture is good, or none where none belongs."""
    got, why = verdicts.judge(name, content, (70,), ("plain*",))
    assert got == verdict
    assert why.startswith(detail)
    assert bool(why) == bool(detail)


def test_every_wanted_architecture_counts() -> None:
    """One of two is not enough."""
    got, why = verdicts.judge("a.so", Content((70,), 1), (70, 80), ())
    assert (got, why) == ("other architecture", "lacks sm_80, holds sm_70")


@pytest.mark.parametrize(
    ("links", "verdict", "detail"),
    [
        (Links(), "ok", ""),
        (Links(missing=("libx.so",)), "fail", "libx.so is not found"),
        (Links(unresolved=("a",)), "fail", "undefined: a"),
        (Links(unresolved=tuple("abcde")), "fail", "undefined: a, b, c and 2 more"),
        (Links(problem="cut short"), "fail", "cut short"),
        (
            Links(driver=("libcuda.so.1",), assumed=2),
            "not checkable here",
            "needs libcuda.so.1; all else that it needs is there",
        ),
        (Links(driver=("libcuda.so.1",), unresolved=("a",)), "fail", "undefined: a"),
    ],
)
def test_judge_links(links: Links, verdict: str, detail: str) -> None:
    """A missing driver excuses its own absence and nothing else."""
    assert verdicts.judge_links(links) == (verdict, detail)


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("vllm/_C.abi3.so", "vllm/_C.abi3.so", True),
        ("vllm/_C.abi3.so", "vllm/*.so", True),
        ("vllm/a/_C.abi3.so", "vllm/*.so", False),
        ("x_cuda.cpython-312.so", "x_cuda*.so", True),
    ],
)
def test_matches(name: str, pattern: str, fits: bool) -> None:
    """A star stops at a slash."""
    assert verdicts.matches(name, pattern) is fits


def library(verdict: str, links: str = "ok") -> LibraryVerdict:
    """Return a library with these verdicts."""
    return LibraryVerdict(
        "p/a.so", "/p/a.so", 1, (), 0, (), verdict, "why", links, "whence"
    )


def test_a_report_is_good_when_nothing_is_wrong() -> None:
    """What only a driver can tell is listed apart and does not fail the report."""
    report = VerifyReport(
        "/venv",
        "sample",
        (70,),
        (library("ok", "not checkable here"), library("no device code")),
        (
            ImportVerdict("p", "ok", "/p/__init__.py"),
            ImportVerdict("q", "not checkable here", detail="needs libcuda.so.1"),
        ),
    )
    assert report.ok
    assert report.unchecked() == [
        "p/a.so: whence",
        "import q: needs libcuda.so.1",
    ]
    data = json.loads(json.dumps(report.to_json()))
    assert data["ok"] is True
    assert data["libraries"][0]["links"] == "not checkable here"


def test_a_report_names_everything_that_is_wrong() -> None:
    """A library may be wrong twice."""
    bad = library("missing", "fail")
    lost = ImportVerdict("p", "fail", detail="ModuleNotFoundError: p")
    report = VerifyReport("/venv", "sample", (70,), (bad,), (lost,))
    assert not report.ok
    assert not bad.ok
    assert not lost.ok
    assert report.problems() == [
        "p/a.so: why",
        "p/a.so: whence",
        "import p: ModuleNotFoundError: p",
    ]
