# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which environment a process runs that was started by the link."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.rig.support.places import PLACE, Town
from tools.rig.builds import generations, switch
from tools.rig.guard import reigns
from tools.rig.guard.reigns import Reign, Turn
from tools.rig.host import processes

SECOND = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Return a place with two generations, the second in force."""
    town = Town(tmp_path)
    for name in ("1", "2"):
        switch.switch(town.root, PLACE, town.generation(name))
    return town


def noted(town: Town, *turns: tuple[str, str, int]) -> None:
    """Let the switches have been at these moments."""
    file = town.home / generations.STATE
    data = {**json.loads(file.read_text()), "turns": [list(turn) for turn in turns]}
    file.write_text(json.dumps(data))


def whose(town: Town, start: int | None) -> list[str]:
    """Return which generations a process that started then may run."""
    found = {name: Reign.of(town.home / name) for name in ("1", "2")}
    return [name for name, one in found.items() if one and one.covers(start)]


def test_by_its_start(town: Town) -> None:
    """The switch before the start tells; in the moment of a switch both may be."""
    boot = processes.boot_id()
    noted(town, ("", "", 0), ("1", boot, 10 * SECOND), ("2", boot, 50 * SECOND))
    assert whose(town, 9 * SECOND) == []
    assert whose(town, 40 * SECOND) == ["1"]
    assert whose(town, 50 * SECOND) == ["1", "2"]
    assert whose(town, 60 * SECOND) == ["2"]


def test_before_this_boot(town: Town) -> None:
    """What was in force when the machine started is so until the next switch."""
    noted(town, ("1", "another boot", 99 * SECOND))
    home = town.home / generations.STATE
    town.link.unlink()
    town.link.symlink_to(town.home / "1")
    assert whose(town, 1) == ["1"]
    assert "another boot" in home.read_text()


def test_not_known(town: Town) -> None:
    """Without notes, with broken or with stale ones, the link as it is now tells."""
    boot = processes.boot_id()
    noted(town, ("2", boot, 0))
    assert whose(town, None) == ["2"]
    noted(town, ("1", boot, 0))
    assert whose(town, 10 * SECOND) == ["2"]
    for text in ("{", "[]", '{"turns": [[1]]}', '{"turns": 7}', "{}"):
        (town.home / generations.STATE).write_text(text)
        assert whose(town, 10 * SECOND) == ["2"], text


def test_older_than_all_notes(town: Town) -> None:
    """It may be anybody's."""
    noted(town, ("2", processes.boot_id(), 10 * SECOND))
    assert whose(town, 1) == ["1", "2"]


def test_bench(town: Town) -> None:
    """Before the first switch it was the bench."""
    noted(town, ("", "", 0), ("2", processes.boot_id(), 10 * SECOND))
    bench = town.environment(town.root.make(town.root.benches) / PLACE, "bench")
    one = Reign.of(bench)
    assert one is not None and one.covers(SECOND) and not one.covers(20 * SECOND)


def test_no_home(tmp_path: Path) -> None:
    """A folder that no link brings into force has no reign."""
    assert Reign.of(tmp_path) is None


def test_switches_note_it(town: Town) -> None:
    """Each switch adds a turn; what was before the first is there, too."""
    turns = generations.placed(town.root, PLACE).turns
    assert [turn.id for turn in turns] == ["", "1", "2"]
    assert turns[1].tick <= turns[2].tick and turns[2].boot == processes.boot_id()


def test_few_are_kept() -> None:
    """Those of other boots but the last, and of this one the oldest, are dropped."""
    boot = processes.boot_id()
    known = [Turn("a", "x", 1), Turn("b", "y", 2), Turn("c", boot, 3)]
    after = reigns.taken(known, "unused", "d")
    assert [turn.id for turn in after] == ["b", "c", "d"]
    many = [Turn(str(i), boot, i) for i in range(200)]
    assert len(reigns.taken(many, "", "d")) == reigns.MOST + 1
    assert reigns.taken((), "was", "d")[0] == Turn("was", "", 0)
