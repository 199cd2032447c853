# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``builds``: the list of what is in force, kept, failed and broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.places import disk
from tests.rig.support.play_series import ALICE, Series
from tests.rig.support.play_series import play as play
from tools.rig.base.errors import InUseError, StepFailed
from tools.rig.base.state import place_id
from tools.rig.builds import generations, record
from tools.rig.guard.gate import InUse
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.steps import builds as listing


class TestList:
    """``builds``."""

    def rows(
        self, play: Series, seen: ScanResult | None = None
    ) -> list[dict[str, Any]]:
        """Return the list, in which the build in force is used or not."""

        def look(targets: Targets) -> ScanResult:
            used = seen is not None and targets.venv.name == play.active
            return seen if used and seen is not None else ScanResult()

        found = listing.builds(play.console, play.at.root, look=look, disk=disk)
        return found.to_json()

    def test_states(self, play: Series) -> None:
        """In force, before, kept; by whom; and what failed is there too."""
        ids = [play.build()["id"] for _ in range(3)]
        play.stage.breaks = "compile"
        with pytest.raises(StepFailed):
            play.build()
        rows = {row["id"]: row for row in self.rows(play, ALICE)}
        states = [rows[name]["state"] for name in ids]
        assert states == ["kept", "previous", "active"]
        assert rows[ids[2]]["used_by"] == ["87221 vllm serve"]
        [failed] = [row for row in rows.values() if row["result"] == "failed"]
        assert failed["state"] == "" and failed["generation"] is None
        said = play.out.getvalue()
        assert "in use: 87221 vllm serve" in said and "done (wheel)" in said
        assert json.loads(json.dumps(list(rows.values())))

    def test_same_as_a_kept_one(self, play: Series) -> None:
        """A build that took one which was there has none that could be removed."""
        play.build()
        last = play.build()["id"]
        play.activate()
        again = play.again()
        rows = {row["id"]: row for row in self.rows(play)}
        assert again["generation"] == last and rows[last]["state"] == "active"
        assert rows[again["id"]]["state"] == ""
        assert rows[again["id"]]["same_as"] == last and rows[last]["same_as"] is None
        assert f"same as {last}" in play.out.getvalue()

    @pytest.mark.parametrize(
        ("error", "result"),
        [
            (InUse(Path("/srv"), ALICE), "kept"),
            (KeyboardInterrupt(), "interrupted"),
        ],
    )
    def test_kept_and_switched_on(
        self, play: Series, error: BaseException, result: str
    ) -> None:
        """A build that waited for the switch is not said to wait once it is made."""
        play.build()
        play.stage.breaks, play.stage.error = "guard", error
        with pytest.raises((InUseError, KeyboardInterrupt)):
            play.build()
        play.stage.breaks = ""
        assert sorted(r["result"] for r in self.rows(play)) == ["done", result]
        again = play.again()
        waited = again["generation"]
        assert waited != again["id"] and play.active == waited
        assert [row["result"] for row in self.rows(play)] == ["done"] * 3

    def test_removed(self, play: Series) -> None:
        """What was pruned says so, be it a build or a wheel that was installed."""
        name = play.build()["id"]
        file = play.at.root.records / f"{name}.json"
        its = json.loads(file.read_text())
        its.pop("plan")
        file.write_text(json.dumps(its))
        play.build()
        generations.remove(play.at.root, play.at.environment.name, name)
        states = {row["id"]: row["state"] for row in self.rows(play)}
        assert states[name] == "removed" and len(states) == 2

    def test_of_one_checkout(self, play: Series) -> None:
        """Only its builds are listed, those that failed early as well."""
        name = play.build()["id"]
        play.stage.breaks = "environment"
        with pytest.raises(StepFailed):
            play.build()
        checkout = play.at.checkout
        other = record.Record(play.at.root, "invoke build-sm70")
        other.update(checkout="/other")
        # the place of these plays is not named by its path
        home = play.at.root.generations / play.at.environment.name
        home.rename(home.with_name(place_id(checkout)))
        everything = self.rows(play)
        assert {row["checkout"] for row in everything} == {str(checkout), "/other"}
        assert str(checkout) in play.out.getvalue()
        rows = listing.builds(
            play.console,
            play.at.root,
            checkout,
            look=lambda targets: ScanResult(),
            disk=disk,
        ).to_json()
        assert [row["id"] for row in rows[1:]] == [name] and len(rows) == 2
        none = listing.builds(play.console, play.at.root, Path("/none"), disk=disk)
        assert none.to_json() == []
        assert play.out.getvalue().endswith("no builds of /none yet\n")

    def test_record_gone(self, play: Series) -> None:
        """A build whose record is gone can still be switched to, so it is listed."""
        name = play.build()["id"]
        (play.at.root.records / f"{name}.json").unlink()
        [row] = self.rows(play)
        assert row["id"] == name and row["state"] == "active"

    def test_broken_place(self, play: Series) -> None:
        """What is wrong with one checkout's builds is told, and hides no others."""
        name = play.build()["id"]
        other = play.at.root.generations / "other-1"
        other.mkdir()
        (other / generations.STATE).write_text("[]")
        (other / "switch.json").write_text("{")
        rows = self.rows(play)
        assert [row["id"] for row in rows] == [name, "(other-1)", "(other-1)"]
        assert [r["result"] for r in rows] == ["done", "unreadable", "unreadable"]
        said = play.out.getvalue()
        for file in (other / generations.STATE, other / "switch.json"):
            assert any(str(file) in row["problem"] for row in rows[1:])
            assert f"hint: mv {file}" in said.replace("'", "")

    def test_broken_note(self, play: Series) -> None:
        """Without the note of the last switch its builds are listed all the same."""
        ids = [play.build()["id"] for _ in range(2)]
        home = play.at.root.generations / play.at.environment.name
        (home / generations.STATE).write_text("[]")
        rows = {row["id"]: row for row in self.rows(play)}
        assert [rows[name]["state"] for name in ids] == ["kept", "active"]
        assert "is no note of a switch" in rows[f"({home.name})"]["problem"]
        with pytest.raises(StepFailed, match="is no note of a switch"):
            play.build()
        # before anything was made, and long before the switch
        assert [name for name, _ in play.stage.calls] == ["git"]

    def test_broken_mark_and_record(self, play: Series) -> None:
        """A build whose own files cannot be read says so, in place of a version."""
        ids = [play.build()["id"] for _ in range(2)]
        home = play.at.root.generations / play.at.environment.name
        (home / ids[0] / generations.MARK).write_text("{")
        (play.at.root.records / f"{ids[1]}.json").write_text("{")
        rows = {row["id"]: row for row in self.rows(play)}
        assert rows[ids[0]]["state"] == "broken"
        assert "rig-generation.json" in rows[ids[0]]["problem"]
        assert rows[ids[1]]["result"] == "unreadable"
        said = [line for line in play.out.getvalue().splitlines() if ids[1] in line]
        assert f"cannot read {play.at.root.records / ids[1]}.json" in said[-1]

    def test_interrupted(self, play: Series) -> None:
        """A switch that was broken off is told, with what becomes of it."""
        play.build()
        home = play.at.root.generations / play.at.environment.name
        (home / "switch.json").write_text('{"phase": "staging", "pairs": []}')
        self.rows(play)
        assert "is undone by the next command" in play.out.getvalue()

    def test_unfinished(self, play: Series) -> None:
        """One that was never finished says so."""
        play.build()
        folder = play.at.root.generations / play.at.environment.name / "2020-left"
        folder.mkdir()
        row = self.rows(play)[-1]
        assert row["id"] == "2020-left" and row["state"] == "incomplete"

    def test_none(self, play: Series) -> None:
        """Without a state root, and without builds, there are none."""
        assert listing.builds(play.console, None).to_json() == []
        assert self.rows(play) == []
