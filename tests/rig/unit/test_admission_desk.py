# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who waits, who runs and who starts next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.rig.builds.admission.budget import Budget
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.desk import Desk
from tools.rig.builds.admission.predictions import Predictions

MIB = 1 << 20


class Machine:
    """What the desk sees of the machine."""

    def __init__(self) -> None:
        self.usable: int | None = None
        self.born: dict[int, int] = {}
        self.loads = 0

    def load(self, file: Path) -> Predictions:
        """Return lives of half a GiB and 20 s, and of 100 MiB and 10 s."""
        self.loads += 1
        found = Predictions()
        for number in range(9):
            found.curves[f"big{number}.o"] = Curve.flat(20, 500 * MIB)
            found.curves[f"small{number}.o"] = Curve.flat(10, 100 * MIB)
        return found


@pytest.fixture
def machine() -> Machine:
    """Return a machine."""
    return Machine()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of predictions; what is in it says the machine."""
    made = tmp_path / "p.json"
    made.touch()
    return made


def desk(machine: Machine, budget: int = 1000 * MIB, cores: int = 4) -> Desk:
    """Return a desk with a fixed budget."""
    counted = Budget(budget, 0, lambda: machine.usable, lambda: None)
    return Desk(counted, cores, machine.load, machine.born.get)


def ask(file: Path, name: str, **more: Any) -> dict[str, Any]:
    """Return what a launcher says first."""
    told = {"object": name, "kind": "cuda", "build": "b", "predictions": str(file)}
    return {**told, **more}


def test_memory_decides(machine: Machine, file: Path) -> None:
    """The longest starts first, what fits beside it follows, the rest waits."""
    one = desk(machine)
    for line, name in enumerate(["small0.o", "big0.o", "big1.o"]):
        one.ask(line, ask(file, name), 0.0)
    assert one.decide(0.0) == [1, 0]
    assert one.decide(1.0) == []
    one.end(1, {"code": 0})
    assert one.decide(2.0) == [2]
    assert machine.loads == 1


class TestSeveralBuilds:
    """Builds take turns."""

    def test_small_beside_big(self, machine: Machine, file: Path) -> None:
        """The short compiles of one do not wait for all long ones of another."""
        one = desk(machine, cores=2, budget=2000 * MIB)
        for line in range(4):
            one.ask(line, ask(file, f"big{line}.o", build="a"), 0.0)
        assert one.decide(0.0) == [0, 1]
        one.ask(10, ask(file, "small0.o"), 1.0)
        one.ask(11, ask(file, "small1.o"), 1.0)
        assert one.decide(1.0) == []
        one.end(0, {"code": 0})
        assert one.decide(20.0) == [10]
        one.end(10, {"code": 0})
        assert one.decide(30.0) == [11]

    def test_room_is_kept(self, machine: Machine, file: Path) -> None:
        """A build of which nothing runs is not passed by with smaller ones."""
        one = desk(machine, budget=620 * MIB)
        for line in range(4):
            one.ask(line, ask(file, f"small{line}.o", build="a"), 0.0)
        assert len(one.decide(0.0)) >= 3
        one.ask(9, ask(file, "small4.o", build="a"), 1.0)
        one.ask(10, ask(file, "big0.o"), 1.0)
        for line in list(one.compiles)[:4]:
            if one.compiles[line].running:
                one.end(line, {"code": 0})
        started = one.decide(2.0)
        assert started[0] == 10

    @pytest.mark.parametrize("builds", ["ab", "abc"])
    def test_in_turn_on_one_core(
        self, machine: Machine, file: Path, builds: str
    ) -> None:
        """Where each place is shared, the build served longest ago is next."""
        one = desk(machine, cores=1, budget=9000 * MIB)
        for line in range(4):
            one.ask(line, ask(file, f"big{line}.o", build="a"), 0.0)
        for number, build in enumerate(builds[1:]):
            for line in range(4):
                told = ask(file, f"small{line}.o", build=build)
                one.ask(10 * (number + 1) + line, told, 0.5)
        order = []
        for now in range(1, 7):
            [line] = one.decide(float(now))
            order.append(one.compiles[line].build)
            one.end(line, {"code": 0})
        assert order == [*builds, *builds, *builds][:6]

    def test_a_place_of_its_own(self, machine: Machine, file: Path) -> None:
        """A build that waits for half a minute shares the cores, memory allowing."""
        one = desk(machine, cores=2, budget=2000 * MIB)
        for line in range(4):
            one.ask(line, ask(file, f"big{line}.o", build="a"), 0.0)
        assert one.decide(0.0) == [0, 1]
        for line in (10, 11):
            one.ask(line, ask(file, f"small{line - 10}.o", asked=1.0), 1.0)
        assert one.decide(30.9) == []
        assert one.decide(31.0) == [10]
        assert one.decide(32.0) == []
        # the cores are not shared by more for it
        one.end(0, {"code": 0})
        assert one.decide(33.0) == []
        one.end(10, {"code": 0})
        assert one.decide(34.0) == [11]
        one.end(1, {"code": 0})
        assert one.decide(35.0) == [2]

    def test_no_place_without_memory(self, machine: Machine, file: Path) -> None:
        """Memory is asked of a build that waited long as well."""
        one = desk(machine, cores=1, budget=640 * MIB)
        one.ask(0, ask(file, "big0.o", build="a"), 0.0)
        assert one.decide(0.0) == [0]
        one.ask(10, ask(file, "big1.o"), 1.0)
        assert one.decide(500.0) == []

    def test_alone_it_gets_the_cores(self, machine: Machine, file: Path) -> None:
        """One build alone never has more compiles than cores, however long it waits."""
        one = desk(machine, cores=1, budget=9000 * MIB)
        for line in range(3):
            one.ask(line, ask(file, f"small{line}.o"), 0.0)
        assert one.decide(0.0) == [0]
        assert one.decide(900.0) == []

    def test_cap_of_one(self, machine: Machine, file: Path) -> None:
        """A build that may run no more leaves the room to the other."""
        one = desk(machine)
        for line in range(3):
            one.ask(line, ask(file, f"small{line}.o", build="a", cap=1), 0.0)
        for line in range(10, 13):
            one.ask(line, ask(file, f"small{line - 7}.o"), 0.0)
        started = one.decide(0.0)
        assert len([line for line in started if line < 10]) == 1
        assert len([line for line in started if line >= 10]) == 3


def test_one_always_runs(machine: Machine, file: Path) -> None:
    """A compile that is larger than the budget runs alone."""
    one = desk(machine, budget=10 * MIB)
    one.ask(0, ask(file, "big0.o"), 0.0)
    one.ask(1, ask(file, "small0.o"), 0.0)
    assert one.decide(0.0) == [0]
    assert one.decide(1.0) == []


def test_cap_of_a_build(machine: Machine, file: Path) -> None:
    """One build's MAX_JOBS binds that build and no other."""
    one = desk(machine, budget=9000 * MIB)
    for line in range(3):
        one.ask(line, ask(file, f"big{line}.o", cap=1), 0.0)
    one.ask(7, ask(file, "small0.o", build="other"), 0.0)
    started = one.decide(0.0)
    assert 7 in started and len(started) == 2
    assert one.status(0.0)["cap"] == 1


def test_what_runs_already(machine: Machine, file: Path) -> None:
    """A compile of an earlier service counts with what it holds since it started."""
    one = desk(machine)
    machine.born[55] = 9
    running = {"started": 2.0, "bytes": 490 * MIB, "child": 55, "owner": 4}
    one.ask(0, ask(file, "big0.o", **running), 12.0)
    one.ask(1, ask(file, "big1.o", asked=11.0), 12.0)
    assert one.used == 490 * MIB
    assert one.decide(12.0) == []
    shown = one.status(12.0)
    assert shown["running"][0] == {
        "object": "big0.o",
        "build": "b",
        "pid": 4,
        "seconds": 10.0,
        "bytes": 490 * MIB,
        "expected_s": 20,
        "expected_peak": 500 * MIB,
        "known": True,
    }
    assert shown["waiting"][0]["seconds"] == 1.0


def test_orphan(machine: Machine, file: Path) -> None:
    """The compiler of a launcher that died keeps its room until it is gone."""
    one = desk(machine)
    machine.born[55] = 9
    one.ask(0, ask(file, "big0.o"), 0.0)
    one.ask(1, ask(file, "big1.o"), 0.0)
    assert one.decide(0.0) == [0]
    one.use(0, {"bytes": 480 * MIB, "child": 55}, 1.0)
    one.gone(0)
    one.look()
    assert one.decide(2.0) == []
    # the pid is somebody else's now
    machine.born[55] = 10
    one.look()
    assert one.decide(3.0) == [1]


def test_launcher_that_leaves(machine: Machine, file: Path) -> None:
    """One that waited, or whose compiler was never seen, leaves nothing behind."""
    one = desk(machine)
    one.ask(0, ask(file, "big0.o"), 0.0)
    one.gone(0)
    one.gone(5)
    one.ask(1, ask(file, "big1.o"), 0.0)
    assert one.decide(0.0) == [1]
    one.gone(1)
    assert not one.orphans and not one.compiles


def test_ran_out(machine: Machine, file: Path) -> None:
    """The budget sinks, and the compile is next with what it is known to need."""
    one = desk(machine)
    one.ask(0, ask(file, "small0.o"), 0.0)
    one.ask(1, ask(file, "small1.o"), 0.0)
    assert one.decide(0.0) == [0, 1]
    one.ran_out(0, {"bytes": 850 * MIB})
    assert one.budget.bytes < 900 * MIB
    one.ask(2, ask(file, "small2.o"), 1.0)
    assert one.decide(1.0) == []
    one.end(1, {"code": 0})
    assert one.decide(2.0) == [0]
    one.ran_out(0, {"bytes": 850 * MIB})
    assert one.decide(3.0) == [0]
    # the second time it has the machine for itself
    one.use(0, {"bytes": MIB}, 4.0)
    assert one.decide(5.0) == []
    one.ran_out(9, {"bytes": 1})


def test_many_wait(machine: Machine, file: Path) -> None:
    """Of hundreds, long ones start, and a small one in the gap they leave."""
    one = desk(machine, budget=820 * MIB)
    for line in range(300):
        told = {"object": f"{line}.cpp.o", "kind": "cxx", "build": "b"}
        one.ask(line, told, float(line))
    one.ask(500, ask(file, "small0.o"), 400.0)
    one.ask(501, ask(file, "big0.o"), 401.0)
    started = one.decide(500.0)
    # all others need more than there is
    assert 500 in started and min(started) >= 500


def test_counts(machine: Machine, file: Path) -> None:
    """What is done, and what a cache answered, is counted for each build."""
    one = desk(machine)
    one.ask(0, ask(file, "small0.o"), 0.0)
    one.ask(1, ask(file, "small1.o", build="c"), 0.0)
    one.end(0, {"cache": "hit"})
    one.end(1, {"cache": "miss"})
    one.end(2, {})
    shown = one.status(0.0)
    assert (shown["done"], shown["hits"]) == (2, 1)
    assert (shown["done_of"], shown["hits_of"]) == ({"b": 1, "c": 1}, {"b": 1})


def test_others_take_memory(machine: Machine, file: Path) -> None:
    """What others took is missing from the budget until they give it back."""
    one = desk(machine)
    one.ask(0, ask(file, "big0.o"), 0.0)
    one.ask(1, ask(file, "small0.o"), 0.0)
    machine.usable = 300 * MIB
    one.look()
    assert one.decide(0.0) == [1]
    machine.usable = 5000 * MIB
    one.look()
    assert one.decide(1.0) == [0]


@pytest.mark.parametrize("bad", ["x", None, float("nan"), [], -5])
def test_nonsense(machine: Machine, file: Path, bad: object) -> None:
    """A launcher that talks nonsense is a compile like any other."""
    one = desk(machine)
    told = ask(file, "small0.o", asked=bad, cap=bad, needs=bad, kills=bad)
    one.ask(0, told, 0.0)
    assert one.decide(0.0) == [0]
    one.use(0, {"bytes": bad, "child": bad}, 1.0)
    one.use(9, {}, 1.0)
    assert one.status(1.0)["running"][0]["bytes"] == 0


def test_predictions_that_change(machine: Machine, tmp_path: Path) -> None:
    """A file is read when it is new, and its absence is no failure."""
    one = desk(machine)
    absent = tmp_path / "p.json"
    one.ask(0, ask(absent, "big0.o"), 0.0)
    assert not one.compiles[0].expected.known
    absent.touch()
    one.ask(1, ask(absent, "big0.o"), 0.0)
    assert one.compiles[1].expected.known
    one.ask(2, {"object": "lib/marlin_gemm.cu.o", "kind": "cuda"}, 0.0)
    assert one.compiles[2].expected.curve.duration > 100
