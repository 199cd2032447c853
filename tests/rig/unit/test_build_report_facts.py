# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The facts of a report: read with patience, counted right, secrets masked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import built
from tools.rig.builds.report import figures, sources
from tools.rig.builds.report.facts import compiled, gather, libraries_of
from tools.rig.builds.report.sources import Compile, Sample

GIB = built.GIB
RECORDS = Path(__file__).parents[3] / "docs" / "rig" / "records"


def compile_(start: float, end: float, **more: Any) -> Compile:
    """Return a compile of little interest but its times."""
    return Compile("csrc", f"{start}.cu", "cuda", start, end, **more)


class TestSources:
    """What a build left behind."""

    def test_lines_of_a_killed_build(self, tmp_path: Path) -> None:
        """A line that was cut, or is no object, is passed over."""
        file = tmp_path / "x.jsonl"
        file.write_text('{"a": 1}\n[2]\n\n{"a": 3}\n{"a": ')
        assert sources.rows(file) == [{"a": 1}, {"a": 3}]
        assert sources.rows(tmp_path / "none") == []

    @pytest.mark.parametrize(
        "output, folder, name",
        [
            ("CMakeFiles/_C.dir/csrc/moe/gate.cu.o", "csrc/moe", "gate.cu"),
            (
                "/home/dev/project/fa/build/temp.linux-x86_64-312/kernel/a.o",
                "fa/kernel",
                "a",
            ),
            (
                "/home/me/p/build/temp.x-312/CMakeFiles/_C.dir/csrc/b.cc.o",
                "csrc",
                "b.cc",
            ),
            ("gdn.cuda.o", "", "gdn.cuda"),
            (".o", "", ".o"),
            ("dep/CMakeFiles/x.dir/src/c.c.o", "dep/src", "c.c"),
        ],
    )
    def test_names(self, output: str, folder: str, name: str) -> None:
        """Build folders and targets say nothing to a person."""
        assert sources.placed(output, built.CHECKOUT) == (folder, name)

    @pytest.mark.parametrize(
        "output, said, kind",
        [
            ("a.cu.o", "", "cuda"),
            ("a.o", "cuda-gemm", "cuda"),
            ("a.o", "c", "cxx"),
            ("a.cc.o", None, "cxx"),
            ("a.so", "", "link"),
            ("a.o", "", "other"),
        ],
    )
    def test_kinds(self, output: str, said: str | None, kind: str) -> None:
        """The launcher's word counts, else the name."""
        assert sources.kind_of(output, said) == kind

    def test_ninjas_one_after_the_other(self) -> None:
        """Each ninja counts from zero; the next begins where the last one ended."""
        rows = [
            {"output": "a.cu.o", "start_s": 0, "end_s": 10},
            {"output": "b.cu.o", "start_s": 5, "end_s": 20, "peak_bytes": 7},
            "no object",
            {"output": "bad.o", "start_s": 9, "end_s": 3},
            {"output": "worse.o", "start_s": True, "end_s": float("inf")},
            {"output": "c.cu.o", "start_s": 1, "end_s": 4},
        ]
        found = sources.of_record(rows, "")
        assert [(c.name, c.start_s, c.end_s) for c in found] == [
            ("a.cu", 0, 10),
            ("b.cu", 5, 20),
            ("c.cu", 21, 24),
        ]
        assert found[1].peak_bytes == 7
        assert sources.of_record(None, "") == []

    def test_events(self) -> None:
        """Times count from the first compile; a line without times is passed over."""
        odd = {"object": "x.o", "started": 5, "ended": 2}
        late = built.event(1, 3, 9, code=1, curve=[[0, 5], "x", [1, None]])
        found = sources.of_events([late, built.event(0, 0, 4, cache="hit"), odd], "")
        assert [(c.start_s, c.end_s, c.waited_s) for c in found] == [
            (0, 4, 0),
            (3, 9, 3),
        ]
        assert [c.state for c in found] == ["hit", "failed"]
        assert found[1].curve == ((0, 5),)
        assert sources.of_events([], "") == []

    def test_samples(self) -> None:
        """How many run is a number or a list; a sample without memory is none."""
        rows: list[dict[str, Any]] = [
            {"t": 2, "used": 5, "running": 3},
            {"t": 1, "used": 4, "running": [1, 2], "budget": 9},
            {"t": 3},
        ]
        first, last = sources.samples(rows)
        assert (first.t, first.running, first.budget) == (1, 2, 9)
        assert (last.running, last.waiting) == (3, None)


class TestFigures:
    """Counting over compiles."""

    def test_lanes(self) -> None:
        """The lowest lane that is free takes the next, stamps a little apart or not."""
        runs = [(0, 10), (0, 4), (3.99, 6), (5, 7), (10, 11)]
        found = figures.lanes([compile_(*run) for run in runs])
        assert found == [0, 1, 1, 2, 0]

    def test_overlap_and_the_end(self) -> None:
        """What ran beside what, and how long the last one ran alone."""
        turns = figures.overlap([compile_(0, 10), compile_(0, 4), compile_(10, 12)])
        assert turns == [(0, 2), (4, 1), (10, 1), (12, 0)]
        assert figures.alone_at_end(turns) == 8
        assert figures.alone_at_end([]) == 0
        assert figures.alone_at_end([(0, 1), (5, 0)]) == 0

    def test_clocks(self) -> None:
        """Samples are moved onto the clock of the compiles."""
        seen = [Sample(t, t, running=int(t > 4)) for t in range(8)]
        moved = figures.aligned(seen, [compile_(0, 2)])
        assert [(s.t, s.used) for s in moved] == [(0, 5), (1, 6), (2, 7)]
        idle = figures.aligned([Sample(3, 1), Sample(4, 2)], [])
        assert [s.t for s in idle] == [0, 1]
        assert figures.aligned([], []) == []

    def test_summed(self) -> None:
        """Without samples the compiles' own memory is added up."""
        one = compile_(0, 10, curve=((0, 5), (6, 7)))
        late = compile_(5, 10, curve=((2, 100),))
        line = figures.summed([one, late, compile_(0, 10)])
        held = {round(s.t, 2): s.used for s in line}
        assert (held[0], held[5], held[7.5], held[10]) == (5, 105, 107, 0)
        assert line[0].running == 2
        assert figures.summed([compile_(0, 1)]) == []

    def test_thinned_keeps_the_peak(self) -> None:
        """Of many samples the highest stay."""
        many = [Sample(t, 99 if t == 777 else 1) for t in range(5000)]
        few = figures.thinned(many, 100)
        assert len(few) == 100 and max(s.used for s in few) == 99
        assert figures.thinned(many[:5], 100) == many[:5]

    def test_by_folder(self) -> None:
        """The dearest folder comes first; shares add up to one."""
        found = figures.by_folder(
            [
                Compile("a", "1", "cuda", 0, 1, peak_bytes=5),
                Compile("b", "2", "cuda", 0, 3),
            ]
        )
        assert [(f["folder"], f["share"]) for f in found] == [("b", 0.75), ("a", 0.25)]
        assert [f["peak_bytes"] for f in found] == [None, 5]


class TestGather:
    """The whole."""

    def test_of_events(self) -> None:
        """Timeline, memory, folders, cache and libraries come from where they stand."""
        got = gather(built.record(), None, events=built.events(), memory=built.memory())
        line, held = got["timeline"], got["memory"]
        assert (line["source"], line["lanes"], line["seconds"]) == ("events", 2, 100)
        assert line["alone_at_end_s"] == 79 and line["at_once"] == 1.21
        assert (held["source"], held["peak_bytes"]) == ("samples", 3 * GIB)
        assert held["peak_s"] == 22 and held["samples_over"] == 0
        assert held["lowest_budget_bytes"] == 2 * GIB
        assert held["oom"] == ["csrc/gemm/small.cu"]
        assert got["cache"] == {"program": "", "hits": 1, "misses": 3}
        assert got["folders"][0]["folder"] == "csrc/gemm"
        [library] = got["libraries"]
        assert (library["link_s"], library["earlier_size"]) == (1.5, None)
        assert got["earlier"] is None and got["build"]["jobs"] == 2
        assert json.loads(json.dumps(got)) == got

    def test_memory_from_curves(self) -> None:
        """A build whose watch wrote nothing still has a line."""
        held = gather(built.record(), None, events=built.events())["memory"]
        assert held["source"] == "curves" and held["peak_bytes"] == 2 * GIB
        assert held["budget_bytes"] is None

    def test_of_ninja_alone(self) -> None:
        """An old record has no events; what was measured then is shown."""
        got = gather(built.record(), None)
        assert got["timeline"]["source"] == "ninja" and not got["timeline"]["note"]
        assert got["memory"]["source"] == ""
        assert got["memory"]["peak_bytes"] == 2 * GIB
        assert got["cache"] is None

    def test_doubt(self) -> None:
        """Times that cannot all be of this run are not passed off as such."""
        short = [{"title": "build the wheel", "seconds": 10, "result": "done"}]
        assert (
            "ninja's log" in gather(built.record(steps=short), None)["timeline"]["note"]
        )

    def test_real_record_of_the_fork(self) -> None:
        """A record in three sittings, without a plan, is read, and doubted."""
        record = json.loads((RECORDS / "fork.json").read_text())
        got = gather(record, record)
        assert len(got["compiles"]) == 112 and got["timeline"]["note"]
        assert round(got["timeline"]["work_s"]) == 15026
        assert got["libraries"][0]["name"] == "vllm/_C.abi3.so"
        assert got["earlier"]["slower"] == got["earlier"]["faster"] == []

    def test_nothing(self) -> None:
        """A build that died at once has a report too."""
        got = gather({"id": "x", "result": "died"}, None)
        assert got["compiles"] == [] and got["timeline"]["source"] == ""
        assert got["steps"] == [] and got["libraries"] == []

    def test_counted_cache(self) -> None:
        """What the cache counted itself goes before what launchers saw."""
        told = {"program": "sccache", "hits": 7, "misses": 1}
        got = gather(built.record(compile_cache=told), None, events=built.events())
        assert got["cache"] == told

    def test_comparison(self) -> None:
        """Slower, faster, new and gone are told apart; what is alike is not listed."""
        then = [built.event(0, 0, 30), built.event(1, 0, 20.5), built.event(2, 0, 9)]
        earlier = built.record("b", plan={"jobs": 4, "toolchain": "CUDA 12.4"})
        now = [*built.events()[:2], built.event(3, 60, 100)]
        got = gather(built.record(), earlier, events=now, earlier_events=then)
        told = got["earlier"]
        assert [(o["name"], o["earlier_s"]) for o in told["slower"]] == [("big.cu", 30)]
        assert told["faster"] == [] and told["both"] == 2
        assert told["new"] == ["csrc/last.cu"]
        assert told["not_compiled"] == ["csrc/bind.cpp"]
        assert told["differs"] == [{"what": "compiles_at_once", "now": 2, "earlier": 4}]
        assert [c["earlier_s"] for c in got["compiles"]] == [20.5, 30, None]

    def test_stale_rows_of_ninja(self) -> None:
        """A build behind the admission compiled what it told of, and nothing else."""
        none = built.record("b", admission={"compiles": 0, "hits": 0})
        told = gather(built.record(), none, events=built.events())["earlier"]
        assert told["both"] == 0 and told["slower"] == told["faster"] == []
        assert told["not_compiled"] == []
        got = gather(none, built.record("a"))
        assert got["compiles"] == [] and got["timeline"]["source"] == ""

    def test_links_are_no_objects(self) -> None:
        """Ninja's links, of which no launcher tells, are not missed among objects."""
        got = gather(built.record(), built.record("b"), events=built.events())
        assert got["earlier"]["not_compiled"] == []
        back = gather(built.record("b"), built.record(), earlier_events=built.events())
        assert not [n for n in back["earlier"]["new"] if n.endswith(".so")]

    @pytest.mark.parametrize("now_hit", [True, False])
    def test_cached_is_neither_faster_nor_slower(self, now_hit: bool) -> None:
        """What a cache gave is not held against a real compile, on either side."""
        hit, real = built.event(0, 0, 1, cache="hit"), built.event(0, 0, 60)
        now, then = ([hit], [real]) if now_hit else ([real], [hit])
        got = gather(built.record(), built.record("b"), events=now, earlier_events=then)
        told = got["earlier"]
        assert told["slower"] == told["faster"] == [] and told["both"] == 0
        assert told["new"] == ([] if now_hit else ["csrc/gemm/big.cu"])

    def test_number_of_ninja_is_no_difference(self) -> None:
        """How many wait is nobody's concern; an unknown setting is no change."""
        mine = {"jobs": 84, "compiles_at_once": 20}
        its = {"jobs": 52, "compiles_at_once": 20, "mode": "fresh"}
        got = gather(built.record(plan=mine), built.record("b", plan=its))
        assert got["earlier"]["differs"] == []
        assert got["build"]["compiles_at_once"] == 20
        unknown = gather(built.record(plan={"jobs": 84}, admission={}), None)
        assert unknown["build"]["compiles_at_once"] is None

    def test_other_builds(self) -> None:
        """Memory and compiles of other builds are not passed off as this one's."""
        shared = [
            {"t": t, "used": 9 * GIB, "budget": 8 * GIB, "running": 7, "waiting": 3}
            | {"own": 2 * GIB if t >= 10 else 0}
            for t in range(100)
        ]
        got = gather(built.record(), None, events=built.events(), memory=shared)
        held = got["memory"]
        assert held["peak_bytes"] == 2 * GIB and held["others_bytes"] == 7 * GIB
        assert held["points"][0] == [0, 2 * GIB, 8 * GIB, 2, 1 + 1]
        assert max(p[3] for p in held["points"]) == 2
        assert held["samples_over"] == 90
        assert got["timeline"]["at_once"] == 1.21
        blind = gather({"id": "x"}, None, memory=shared)["memory"]
        assert {(p[3], p[4]) for p in blind["points"]} == {(None, None)}

    @pytest.mark.parametrize(
        "record, anything, itself",
        [
            ({"objects": [1]}, True, True),
            ({"objects": []}, False, False),
            ({"objects": [1], "admission": {"compiles": 0}}, False, False),
            ({"admission": {"compiles": 5, "hits": 5}}, True, False),
            ({"admission": {"compiles": 5, "hits": 4}}, True, True),
            ({"objects": [1], "admission": None}, False, False),
        ],
    )
    def test_compiled(
        self, record: dict[str, Any], anything: bool, itself: bool
    ) -> None:
        """The admission's figures say it, else ninja's rows do."""
        assert compiled(record) is anything
        assert compiled(record, cached=False) is itself

    def test_secrets(self) -> None:
        """A token on the command line does not get into the report."""
        token = "hf_" + "a" * 30
        got = gather(built.record(command=f"x --hf-token {token}"), None)
        assert token not in json.dumps(got) and "***" in got["build"]["command"]

    def test_libraries_of(self) -> None:
        """Records of both shapes, and broken ones."""
        assert libraries_of({"libraries": [{"name": "a"}, 3]}) == [{"name": "a"}]
        assert libraries_of({"verify": "x"}) == []
        assert libraries_of({"verify": {"libraries": 3}}) == []
