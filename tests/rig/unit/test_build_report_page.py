# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The page of a report: whole, escaped, and right in its words."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from tests.rig.support import built
from tools.rig.builds.report import pieces, plain, plots, sheet, tables, words
from tools.rig.builds.report.facts import gather
from tools.rig.builds.report.page import page

GIB = built.GIB
EVIL = 'csrc/<script>alert("x")</script>/$a_b$&amp;.cu'


class Reader(HTMLParser):
    """Reads a page: elements that were opened, and whether all were closed."""

    VOID = ("meta", "wbr", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        """Note an element, and what it would fetch."""
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[Any]) -> None:
        """Note one that holds nothing."""
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the last one, which must be of this name."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is read."""
        self.words.append(data)


def facts(events: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the facts of a build with everything in it."""
    return gather(
        built.record(**more),
        built.record("20261129-080000-bbbb", seconds=200.0),
        events=built.events() if events is None else events,
        memory=built.memory(),
        earlier_events=[built.event(0, 0, 30), built.event(2, 0, 9)],
    )


def drawn(told: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Draw without matplotlib."""
    return plain.drawings(sheet.sheet(told))


def test_whole() -> None:
    """Every part is there, everything opened is closed, nothing is fetched or run."""
    told = facts()
    text = page(told, drawn(told), "A note.")
    read = Reader(text)
    said = "".join(read.words)
    assert read.open == [] and read.links == [] and "script" not in read.tags
    for part in (
        "Built in 2 min 10 s",
        "That is 1 min 10 s less than the build before.",
        "What ran when",
        "budget 4.0 GiB",
        "most used 3.0 GiB",
        "Slowest objects",
        "Cost by folder",
        "Compile cache",
        "1 slower",
        "sm_70",
        "one work-round",
        "A note.",
    ):
        assert part in said, part
    assert read.tags.count("svg") == 4
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text


def test_escaped() -> None:
    """A name that is HTML stays a name, in tables and in drawings."""
    event = built.event(0, 0, 60, object=f"CMakeFiles/x.dir/{EVIL}.o", code=2)
    told = facts([event], result="failed", error="<b>broken</b>", version="<i>1</i>")
    read = Reader(page(told, drawn(told)))
    assert not {"script", "b", "i"} & set(read.tags) - {"b", "i"}
    said = "".join(read.words)
    assert "<b>broken</b>" in said and "$a_b$&amp;.cu" in said
    assert "<script>alert" in said and "Failed after 2 min 10 s" in said


@pytest.mark.parametrize("result", ["failed", "interrupted", "died", "running", None])
def test_bare_record(result: str | None) -> None:
    """A build that left next to nothing still has a page."""
    told = gather({"id": "x", "result": result}, None)
    read = Reader(page(told, drawn(told)))
    said = "".join(read.words)
    assert "Nothing was compiled" in said and "svg" not in read.tags
    assert "Nobody measured" in said


class TestWords:
    """Sentences say what the figures mean."""

    def test_memory(self) -> None:
        """Budget, its lowering, what was above it, and a kill are told."""
        told = facts()
        said = words.memory(told)
        assert "At most 3.0 GiB of 4.0 GiB (75%)" in said
        assert "lowered to 2.0 GiB" in said and "csrc/gemm/small.cu" in said
        told["memory"]["samples_over"] = 3
        assert "In 3 samples it was above" in words.memory(told)

    def test_memory_of_other_builds(self) -> None:
        """Others are told of only where there were some."""
        told = facts()
        assert "Other builds" not in words.memory(told)
        told["memory"] |= {"others_bytes": 5 * GIB, "samples_over": 3}
        said = words.memory(told)
        assert "Other builds held up to 5.0 GiB at the same time." in said
        assert "In 3 samples all builds together were above the budget." in said

    def test_budget_lowered_by_nothing(self) -> None:
        """A lowering that nobody could read is not told."""
        told = facts()
        told["memory"]["lowest_budget_bytes"] = 4 * GIB - 1000
        assert "lowered" not in words.memory(told)

    def test_memory_of_curves(self) -> None:
        """A line that was added up says so."""
        told = gather(built.record(), None, events=built.events())
        assert "adds up" in words.memory(told)

    def test_waited_for_others(self) -> None:
        """A build that had to wait for another one says for which and how long."""
        record = built.record()
        assert "none ran" not in words.timeline(facts())
        record["admission"] = {"stalled_s": 463.0, "held_by": ["07-1"]}
        said = words.timeline(gather(record, None, events=built.events()))
        assert "For 7 min 43 s none ran, since build 07-1 had the room." in said
        record["admission"] = {"stalled_s": 463.0, "held_by": 7}
        said = words.timeline(gather(record, None, events=built.events()))
        assert "since others had the room." in said

    def test_timeline(self) -> None:
        """A long end with one compile is named."""
        assert "For the last 1 min 19 s one ran alone." in words.timeline(facts())

    @pytest.mark.parametrize(
        "seconds, said",
        [(200.0, "as long as"), (300.0, "1 min 40 s longer"), (None, "")],
    )
    def test_versus(self, seconds: float | None, said: str) -> None:
        """Longer, less or alike."""
        got = words.versus(facts(seconds=seconds))
        assert said in got and bool(said) == bool(got)

    def test_cache(self) -> None:
        """Hits, what they spared, and errors."""
        assert "had 1 of 4 objects (25%)" in words.cache(facts())
        assert "took 8.0 s last time" in words.cache(facts())
        none = {"program": "ccache", "hits": 0, "misses": 0}
        assert words.cache(facts(compile_cache=none)) == (
            "ccache was not asked for anything."
        )
        bad = {"program": "sccache", "hits": 1, "misses": 1, "errors": 4}
        assert "met 4 errors" in words.cache(facts(compile_cache=bad))
        assert "No compile cache" in words.cache(gather(built.record(), None))

    def test_comparison(self) -> None:
        """What was different then is told."""
        told = facts(plan={"jobs": 9})
        assert "number of compiles at once was 2, now it is 9" in words.comparison(told)

    def test_nothing_to_compare_with(self) -> None:
        """Where no earlier build compiled anything, the page says so."""
        told = gather(built.record(), None, events=built.events())
        assert "There is none to compare with" in tables.comparison(told)

    def test_compiles_at_once(self) -> None:
        """What is told is what may run, not how many ninja lets wait."""
        told = facts(plan={"jobs": 84, "compiles_at_once": 20, "jobs_why": "20 cores"})
        assert "with at most 20 compiles at once." in words.lede(told)
        assert "20 (20 cores)" in tables.setting(told)
        told = facts(plan={"jobs": 84, "jobs_why": "cores"}, admission={"compiles": 4})
        assert "84" not in words.lede(told) + tables.setting(told)

    @pytest.mark.parametrize(
        "now, then, said",
        [
            (3, 2, "+1"),
            (2, 3, "−1"),
            (1000, 1001, "same"),
            (None, 1, ""),
            (1, None, ""),
        ],
    )
    def test_changed(self, now: float | None, then: float | None, said: str) -> None:
        """A difference has its sign."""
        assert words.changed(now, then, str) == said


class TestSheet:
    """What is to be drawn."""

    @pytest.mark.parametrize(
        "seconds, labels",
        [
            (0.7, ["0", "0.2 s", "0.4 s", "0.6 s"]),
            (130, ["0", "1 min", "2 min"]),
            (6000, ["0", "30 min", "1 h", "90 min"]),
            (10**6, ["0", "128 h", "256 h"]),
        ],
    )
    def test_ticks(self, seconds: float, labels: list[str]) -> None:
        """Moments are round and few."""
        assert [label for _, label in sheet.ticks(seconds, 4)] == labels

    @pytest.mark.parametrize(
        "top, labels",
        [
            (26, ["0", "10", "20"]),
            (4.2, ["0", "1", "2", "3", "4"]),
            (0.9, ["0", "0.2", "0.4", "0.6", "0.8"]),
            (0, ["0"]),
        ],
    )
    def test_values(self, top: float, labels: list[str]) -> None:
        """Values are round, however large the budget is."""
        assert [label for _, label in sheet.round_values(top)] == labels

    def test_title(self) -> None:
        """A bar says what it is, and all that went wrong with it."""
        odd = built.event(0, 5, 60, attempts=3, code=9, cache="miss")
        [row] = gather(built.record(), None, events=[odd])["compiles"]
        assert sheet.title(row).split("\n") == [
            "big.cu",
            "csrc/gemm",
            "55 s",
            "1.0 GiB at most",
            "waited 5.0 s for room",
            "3 tries",
            "failed (status 9)",
        ]

    def test_script_knows_every_color(self) -> None:
        """All states that a bar can have, and their letters, have a colour."""
        states = {"cuda", "cxx", "link", "other", "hit", "failed"}
        assert states <= set(plots.COLOR)
        style = page(facts(), {})
        assert all(f"--{name}:" in style for name in plots.COLOR)

    def test_fitting(self) -> None:
        """A label that does not fit is cut, and left out where too little stays."""
        assert plots.fitting("short.cu", 100, 10) == "short.cu"
        assert plots.fitting("a_very_long_name.cu", 70, 10) == "a_very_lon…"
        assert plots.fitting("a_very_long_name.cu", 30, 10) == ""


def test_long_lists() -> None:
    """Many objects are folded, many folders summed."""
    many = [
        built.event(0, n, n + 1, object=f"CMakeFiles/x.dir/f{n}/a.cu.o")
        for n in range(40)
    ]
    told = facts(many)
    assert "All 40 objects" in tables.slowest(told)
    assert "25 more folders" in tables.folders(told)


def test_bad_library_and_step() -> None:
    """What failed is marked with more than a colour."""
    library = {"name": "a.so", "size": 5, "sms": [], "ptx": [70], "verdict": "ptx only"}
    steps = [{"title": "verify", "seconds": 1, "result": "failed"}]
    told = facts(verify={"libraries": [library]}, steps=steps)
    assert "✗ ptx only" in tables.libraries(told)
    assert "failed" in tables.steps(told)


def test_path_breaks_where_parts_meet() -> None:
    """A long path may be broken behind a slash and an underscore."""
    assert pieces.path("a/b_<c") == "a/<wbr>b_<wbr>&lt;c"
