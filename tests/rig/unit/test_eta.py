# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How well the end of a build is foretold: learned from one, judged on another."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.rig.builds import eta
from tools.rig.builds.eta import Eta, stages

RECORDS = Path(__file__).parents[3] / "docs" / "rig" / "records"
QUARTER, HALF = 0.25, 0.5
MOMENTS = 400

Made = tuple[float, float, str]
"""Start, end and name of one output."""


def record(name: str) -> list[dict[str, Any]]:
    """Return the outputs of a committed record."""
    data = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return list(data["objects"])


def first() -> list[Made]:
    """Return the build of the fork that is learned from."""
    return [(o["start_s"], o["end_s"], o["output"]) for o in record("fork-replay")]


def second() -> list[list[Made]]:
    """Return the other build of the fork, its three ninjas one after the other.

    The first one was interrupted and went on in a second sitting, whose times count
    from zero again.
    """
    found: list[list[Made]] = []
    for one in record("fork"):
        made = (one["start_s"], one["end_s"], one["output"])
        if not found or (made[0] < found[-1][-1][0] and made[1] < found[-1][-1][1]):
            found.append([])
        found[-1].append(made)
    again = [m for m in found[0] if _is_second_sitting(m[2])]
    before = [m for m in found[0] if m not in again]
    pause = max(end for _, end, _ in before)
    found[0] = before + [(s + pause, e + pause, name) for s, e, name in again]
    return found


def _is_second_sitting(name: str) -> bool:
    moe = "marlin_moe_wna16/sm70_marlin_" in name and "dispatch" not in name
    return moe or "flash-attn" in name or name.endswith(".so")


def errors(
    known: Sequence[eta.Stage],
    build: Sequence[Sequence[Made]],
    jobs: int,
    waiting: int = 0,
) -> list[tuple[float, float]]:
    """Return at which part of a build its whole time was foretold how wrong.

    Parameters
    ----------
    waiting
        Compiles that wait for room, where the admission tells; 0 where nobody does.
    """
    found, lines = Eta(known, jobs=jobs), []
    offset = 0.0
    for ninja in build:
        ends = sorted(ninja, key=lambda m: m[1])
        for done, (start, end, name) in enumerate(ends, 1):
            lines.append((offset + end, offset + start, name, done, len(ends)))
        offset += ends[-1][1]
    found.output(0.0)
    whole, at, seen = offset, 0, []
    for moment in range(MOMENTS):
        now = whole * moment / MOMENTS
        while lines[at][0] <= now:
            found.finished(lines[at][2], lines[at][3], lines[at][4], lines[at][0])
            at += 1
        if waiting:
            running = {name: s for e, s, name, *_ in lines if s <= now < e}
            later = sorted((s, name) for _, s, name, *_ in lines if s > now)
            found.status(running, [name for _, name in later[:waiting]])
        left = found.left(now)
        if left is not None:
            seen.append((now / whole, (now + left - whole) / whole))
    return seen


def worst(seen: Sequence[tuple[float, float]], since: float = QUARTER) -> float:
    """Return the largest error since a part of a build."""
    return max(abs(wrong) for part, wrong in seen if part >= since)


def other_machine(
    made: Sequence[Made], cores: int, slower: float, seed: int
) -> list[Made]:
    """Return the build of another machine, where each output is 20 % off as well."""
    dice, lanes, found = random.Random(seed), [0.0] * cores, []
    for start, end, name in made:
        begin = heapq.heappop(lanes)
        seconds = (end - start) * slower * dice.uniform(0.8, 1.2)
        heapq.heappush(lanes, begin + seconds)
        found.append((begin, begin + seconds, name))
    return found


class TestGoal:
    """Within 20 % from the first quarter on."""

    @pytest.mark.parametrize("waiting", [0, 20])
    @pytest.mark.parametrize("slower", [0.5, 1.0, 2.5])
    @pytest.mark.parametrize("cores", [2, 8, 20])
    def test_other_machine(self, cores: int, slower: float, waiting: int) -> None:
        """It holds on any machine that keeps its speed, with and without a status."""
        known = stages(record("fork-replay"))
        for seed in range(5):
            build = [other_machine(first(), cores, slower, seed)]
            assert worst(errors(known, build, cores, waiting)) <= 0.2

    @pytest.mark.parametrize("waiting", [0, 20])
    def test_other_recording(self, waiting: int) -> None:
        """On the other recording it holds from the half on.

        Its first quarter went at the speed of the first recording; then other work came
        onto the machine, and the rest took 1.5 times as long: before, nobody can know.
        """
        known = stages(record("fork-replay"))
        seen = errors(known, second()[:1], 2, waiting)
        assert worst(seen) <= 0.3
        assert worst(seen, HALF) <= 0.2
        late = [abs(wrong) for part, wrong in seen if part >= QUARTER]
        assert sum(late) / len(late) <= 0.13

    def test_sample(self) -> None:
        """It holds on the sample, whose one long file everything waits for."""
        made = [(o["start_s"], o["end_s"], o["output"]) for o in record("sample")]
        assert worst(errors(stages(record("sample")), [made], 2)) <= 0.2

    def test_all_ninjas(self) -> None:
        """The ninjas that are still to come are counted from the start."""
        build = second()
        known = stages(record("fork"))
        assert [len(stage) for stage in known] == [102, 8, 2]
        whole = [
            {name: end - start for start, end, name in sorted(ninja)} for ninja in build
        ]
        assert worst(errors(whole, build, 2)) <= 0.05
        assert worst(errors(whole, build, 2, 20)) <= 0.1


class TestParts:
    """What is known of a build, and what is not."""

    def test_nothing_known(self) -> None:
        """Without an earlier build a time comes after a few outputs, and adapts."""
        found = Eta()
        assert found.left(0) is None
        found.output(10)
        for done in (1, 2):
            found.finished(f"{done}.cu.o", done, 10, 10 + 20 * done)
            assert found.left(50) is None
        found.finished("3.cu.o", 3, 10, 70)
        assert found.left(70) == pytest.approx(140)

    def test_expected(self) -> None:
        """An output that no earlier build made takes what its kind does."""
        found = Eta(expected=lambda name: 30.0 if name == "new.cu.o" else None)
        assert found.seconds("new.cu.o") == 30
        assert found.seconds("other.cu.o") == eta.USUAL["cuda"]
        assert found.seconds("other.cpp.o") == eta.USUAL["cxx"]
        assert found.seconds("_C.abi3.so") == eta.USUAL["link"]

    def test_measured(self) -> None:
        """An output's own time counts, not what it waited for room."""
        objects = [
            {"output": "a.o", "start_s": 0, "end_s": 50},
            {"output": "a.so", "start_s": 50, "end_s": 51},
        ]
        assert stages(objects, {"a.o": 20.0}.get) == [{"a.o": 20.0, "a.so": 1.0}]

    def test_paths(self) -> None:
        """The same output is found again below another folder."""
        found = Eta([{"ext/build/k.o": 5.0, "other/k.o": 7.0}])
        assert found.key("/home/me/src/ext/build/k.o") == "ext/build/k.o"
        assert found.key("k.o") == "ext/build/k.o"
        assert found.key("xother/k.o") == "xother/k.o"

    def test_changed_files_only(self) -> None:
        """When only some are made again, the ninjas to come are small as well."""
        first_one = {f"{n}.cu.o": 10.0 for n in range(100)}
        found = Eta([first_one, {f"x/{n}.cu.o": 10.0 for n in range(50)}])
        found.output(0)
        found.finished("7.cu.o", 1, 10, 10)
        assert found.left(10) == pytest.approx(9 * 10 + 0.1 * 500)

    def test_cache(self) -> None:
        """What comes from the cache shortens the rest, and makes no machine faster."""
        found = Eta([{f"{n}.cu.o": 100.0 for n in range(10)}])
        found.output(0)
        for n in range(4):
            found.finished(f"{n}.cu.o", n + 1, 10, n + 1.0)
        assert found.hits == 4
        found.finished("4.cu.o", 5, 10, 104.0)
        assert found.speed(104) == pytest.approx(1)
        assert found.left(104) == pytest.approx(100 + 400 * 0.2)

    def test_overdue(self) -> None:
        """Something that takes far longer than it should slows the rest down."""
        found = Eta([{f"{n}.cu.o": 10.0 for n in range(4)}])
        found.output(0)
        found.finished("0.cu.o", 1, 4, 10)
        found.status({"1.cu.o": 10.0}, [])
        assert found.left(15) == pytest.approx(25)
        assert found.speed(110) == pytest.approx(5.5, rel=0.05)

    def test_link_that_waited(self) -> None:
        """A link that had to wait for its objects says nothing of the speed."""
        found = Eta([{"a.cu.o": 10.0, "_C.so": 1.0, "b.cu.o": 10.0}], jobs=2)
        found.output(0)
        found.finished("a.cu.o", 1, 3, 10)
        found.finished("_C.so", 2, 3, 18)
        assert found.speed(18) == pytest.approx(1)

    def test_other_order(self) -> None:
        """Another order of the same outputs does not pass for another speed."""
        found = Eta([{f"{n}.cu.o": 10.0 for n in range(40)}])
        found.output(0)
        for done, n in enumerate(reversed(range(20, 40)), 1):
            found.finished(f"{n}.cu.o", done, 40, 10.0 * done)
        assert found.left(200) == pytest.approx(200, rel=0.05)

    def test_unknown_ninja(self) -> None:
        """A ninja that only fetches sources says nothing of the one that compiles."""
        found = Eta([{"a.cu.o": 10.0, "b.cu.o": 10.0}])
        found.output(0)
        found.finished("'populate'", 1, 2, 1)
        found.finished("'populate-done'", 2, 2, 2)
        found.output(60)
        found.finished("a.cu.o", 1, 2, 70)
        assert found.left(70) == pytest.approx(10, rel=0.1)

    def test_running_more_than_ninja_says(self) -> None:
        """A status that is ahead of ninja's lines does no harm."""
        found = Eta([{"a.cu.o": 10.0, "b.cu.o": 10.0}])
        found.output(0)
        found.finished("a.cu.o", 1, 2, 10)
        found.status({"b.cu.o": 10.0, "c.cu.o": 11.0, "a.cu.o": 1.0}, ["d.cu.o"])
        left = found.left(12)
        assert left is not None and 0 < left <= 100
        found.finished("b.cu.o", 2, 2, 20)
        assert found.left(20) == 0
