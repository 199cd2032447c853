# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a compile will take, and how that is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import filelock
import pytest

from tools.rig.builds.admission import forecast, predictions
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import KINDS, Predictions

GIB = 1 << 30
MIB = 1 << 20
LIFE = Curve(((0.0, MIB), (30.0, 2 * GIB), (60.0, GIB)))


def event(**more: Any) -> dict[str, Any]:
    """Return the line that a launcher writes of a compile that went well."""
    return {
        "object": "CMakeFiles/_C.dir/a.cu.o",
        "cwd": "/w",
        "seconds": 60.0,
        "peak_bytes": 2 * GIB,
        "curve": [[0, MIB], [30, 2 * GIB], [55, GIB]],
        "code": 0,
        "cache": "",
    } | more


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CMakeFiles/_C.dir/csrc/quantization/marlin/sm70_marlin_u8_gemm.cu.o", "gemm"),
        ("CMakeFiles/_C.dir/csrc/marlin/repack.cu.o", "cuda"),
        ("gdn_forward.cuda.o", "cuda"),
        ("csrc/torch_bindings.cpp.o", "cxx"),
        ("kernel/fused.o", "cxx"),
        ("a/b.cc.o", "cxx"),
        ("a/b.c.o", "c"),
        ("x.cu", "cuda"),
    ],
)
def test_kind_by_name(name: str, kind: str) -> None:
    """The kind of an object is seen from its own name, not from its folder's."""
    assert predictions.kind_of(name) == kind


@pytest.mark.parametrize(
    ("output", "folder", "key"),
    [
        ("CMakeFiles/_C.dir/a.cu.o", "/w", "CMakeFiles/_C.dir/a.cu.o"),
        ("./a.o", "", "a.o"),
        ("/w/a/b.o", "/w/", "a/b.o"),
        ("/tmp/x1/build/temp.linux-x86_64-cpython-312/k/a.o", "/w", "k/a.o"),
        ("sub/build/temp.linux/k/a.o", "/w", "k/a.o"),
    ],
)
def test_key_of_an_object(output: str, folder: str, key: str) -> None:
    """The same object of another checkout or temporary folder has the same key."""
    assert predictions.key_of(output, folder) == key


def test_what_was_never_measured_is_of_its_kind() -> None:
    """The table serves, by the kind that the caller knows or by the name."""
    known = Predictions().predict("a.cu.o")
    assert (known.curve, known.known) == (KINDS["cuda"], False)
    assert Predictions().predict("a.o", "cuda").curve == KINDS["cuda"]
    assert Predictions().predict("a.o", "no such kind").curve == KINDS["cxx"]


def test_what_is_learnt_is_kept(tmp_path: Path) -> None:
    """The next build predicts what this one measured."""
    file = tmp_path / "predictions" / "v100-12.4.json"
    one = Predictions.load(file)
    assert one.learn("a.cu.o", LIFE)
    assert one.save(file)
    again = Predictions.load(file).predict("a.cu.o")
    assert again.known
    assert again.curve == LIFE


def test_two_builds_lose_nothing(tmp_path: Path) -> None:
    """Each adds what it learnt to what the other wrote meanwhile."""
    file = tmp_path / "p.json"
    first, second = Predictions.load(file), Predictions.load(file)
    first.learn("a.cu.o", LIFE)
    second.learn("b.cu.o", LIFE)
    assert first.save(file) and second.save(file)
    assert set(Predictions.load(file).curves) == {"a.cu.o", "b.cu.o"}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 1}', '{"format": 1, "objects": [["a", [[1, -1]]]]}']
    + ['{"format": 1, "objects": [["a", []]]}', '{"format": 99, "objects": []}'],
)
def test_a_broken_file_starts_afresh(tmp_path: Path, text: str) -> None:
    """It fails no build, and the next save writes a good one."""
    file = tmp_path / "p.json"
    file.write_text(text)
    one = Predictions.load(file)
    assert one.curves == {}
    one.learn("a.cu.o", LIFE)
    assert one.save(file)
    assert Predictions.load(file).curves == {"a.cu.o": LIFE}


def test_a_file_that_cannot_be_written_fails_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in place of the folder, and a lock that is never given, are lived with."""
    (tmp_path / "f").write_text("")
    one = Predictions()
    one.learn("a.cu.o", LIFE)
    assert not one.save(tmp_path / "f" / "p.json")
    monkeypatch.setattr(predictions, "_LOCK_S", 0.01)
    with filelock.FileLock(tmp_path / "p.json.lock"):
        assert not one.save(tmp_path / "p.json")
    assert one.learnt == {"a.cu.o"}


def test_events_teach() -> None:
    """The curve of a compile that went well is remembered to its end, with its peak."""
    one = Predictions()
    assert one.learn_events([event(), event(object="/w/b.cu.o", peak_bytes=3 * GIB)])
    assert one.curves["CMakeFiles/_C.dir/a.cu.o"].duration == 60
    assert one.curves["b.cu.o"].peak == pytest.approx(3 * GIB, rel=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        event(code=1),
        event(cache="hit"),
        event(curve=None),
        event(seconds="soon"),
        event(curve=[[0, MIB]], peak_bytes=MIB),
        {"code": 0},
        {},
    ],
)
def test_what_was_no_whole_compile_teaches_nothing(bad: dict[str, Any]) -> None:
    """Failures, answers of the cache and lines cut short are passed over."""
    one = Predictions()
    assert one.learn_events([bad]) == 0
    assert one.curves == {}


def test_a_stub_does_not_replace_what_is_known() -> None:
    """Much shorter and much smaller at once is no compile; either alone may be."""
    one = Predictions({"a.cpp.o": LIFE})
    assert not one.learn("a.cpp.o", Curve.flat(1, 50 * MIB))
    assert one.learn("a.cpp.o", Curve.flat(1, GIB))
    assert one.predict("a.cpp.o").curve.duration == 1


def test_long_curves_are_thinned() -> None:
    """What is stored stays small, and keeps its peak."""
    one = Predictions()
    one.learn("a.cu.o", Curve(tuple((float(i), i * GIB // 99) for i in range(900))))
    kept = one.curves["a.cu.o"]
    assert len(kept.points) <= 48
    assert kept.peak == 899 * GIB // 99


def test_jobs_of_ninja_are_many_and_those_of_the_compilers_few() -> None:
    """Ninja gets what may wait; cores and the user's wish are the cap."""
    plan = forecast.plan_jobs(None, "", 26 * GIB, 20)
    assert (plan.ninja, plan.cap) == (119, 20)
    assert plan.why == "at most 20 (cores), up to 26.0 GiB for all together"
    plan = forecast.plan_jobs(3, "MAX_JOBS", 0, 20)
    assert (plan.ninja, plan.cap) == (11, 3)
    assert plan.why == "at most 3 (MAX_JOBS says so), up to 0.0 GiB for all together"
    assert forecast.plan_jobs(None, "", 1 << 50, 4).ninja == 204


def test_expected_time_of_a_build() -> None:
    """What is known counts as measured, the rest as its kind."""
    known = Predictions({"a.cu.o": Curve.flat(500, GIB)})
    keys = ["a.cu.o", "b.cu.o", "c.cpp.o"]
    assert forecast.expected_seconds(keys, known, 20 * GIB, 4) == 500
    alone = forecast.expected_seconds(keys, known, 20 * GIB, 1)
    assert alone == pytest.approx(585, rel=0.03)
    assert forecast.expected_seconds(keys, known, 20 * GIB, 4, 1) == alone
