# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which builds stay when a new one is in force, and which go."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fakescene
from tests.rig.support.play_series import ALICE, Series
from tests.rig.support.play_series import play as play
from tools.rig.base.errors import InUseError, StepFailed
from tools.rig.builds import generations, record
from tools.rig.guard import gate
from tools.rig.guard.scan import ScanResult
from tools.rig.guard.targets import Targets
from tools.rig.host import processes
from tools.rig.steps import builds as listing
from tools.rig.steps import from_wheel, pruning


class TestPrune:
    """Which builds stay."""

    def test_count(self, play: Series) -> None:
        """Beyond the setting the oldest go, wheel and all; never the one before."""
        settings = replace(
            play.at.settings, values={**play.at.settings.values, "keep_builds": 1}
        )
        play.at = replace(play.at, settings=settings)
        made = [play.build()["id"] for _ in range(4)]
        assert play.kept == [made[3], made[2]]
        assert not (play.at.root.artifacts / made[0]).exists()
        assert f"old build {made[0]} removed" in play.out.getvalue()

    def test_in_use(self, play: Series, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that somebody runs from stays, however old."""
        made = [play.build()["id"] for _ in range(5)]
        used = play.at.root.generations / play.at.environment.name / made[0]
        assert not used.exists()
        made += [play.build()["id"] for _ in range(2)]
        old = play.kept[-1]

        def look(targets: Targets) -> ScanResult:
            return ALICE if targets.venv.name == old else ScanResult()

        monkeypatch.setattr(pruning, "NEED_AGAIN_BYTES", 1 << 60)
        pruning.prune(play.console, play.at, look)
        assert old in play.kept and play.active in play.kept

    def test_waiting_builds(
        self, play: Series, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Those that wait for a server's end do not pile up; the newest stays."""
        first = play.build()["id"]
        play.stage.breaks, play.stage.error = "guard", gate.InUse(tmp_path, ALICE)
        for _ in range(4):
            with pytest.raises(InUseError):
                play.build()
        assert len(play.kept) == 4 and play.kept[-1] == play.active == first
        monkeypatch.setattr(pruning, "NEED_AGAIN_BYTES", 1 << 60)
        with pytest.raises(InUseError):
            play.build()
        assert len(play.kept) == 2 and play.active == first
        monkeypatch.setattr(from_wheel.uv, "program", lambda env: Path("/uv"))
        with pytest.raises(InUseError):
            from_wheel.install(
                play.console,
                play.at,
                fakescene.make_wheel(tmp_path),
                use=play.stage.tools,
            )
        assert len(play.kept) == 2 and play.active == first

    def test_leftovers(self, play: Series) -> None:
        """The wheel of a build that failed goes with the next one that does not."""
        play.build()
        play.stage.verdicts = ["no code"]
        with pytest.raises(StepFailed):
            play.build()
        play.stage.verdicts = ["ok", "ok"] * 9
        left = record.listing(play.at.root)[0]["id"]
        assert list((play.at.root.artifacts / left).glob("*.whl"))
        other = play.at.root.make(play.at.root.artifacts / "of-nobody")
        made = play.build()["id"]
        assert not (play.at.root.artifacts / left).exists()
        assert other.is_dir() and (play.at.root.artifacts / made).is_dir()

    def test_started_by_the_link(self, play: Series) -> None:
        """Who was started by the link runs what it led to then, and keeps that."""
        settings = replace(
            play.at.settings, values={**play.at.settings.values, "keep_builds": 1}
        )
        play.at = replace(play.at, settings=settings)
        first = play.build()["id"]
        home = play.at.root.generations / play.at.environment.name
        note = json.loads((home / generations.STATE).read_text())
        name, boot, tick = note["turns"][-1]
        assert name == first and boot == processes.boot_id()
        # it was switched on an hour ago, and somebody came soon after
        second = os.sysconf("SC_CLK_TCK")
        note["turns"][-1][2] = tick - 3600 * second
        (home / generations.STATE).write_text(json.dumps(note))
        came = tick - 3000 * second

        def look(targets: Targets) -> ScanResult:
            return ALICE if targets.led(came) else ScanResult()

        play.look = look
        later = [play.build()["id"] for _ in range(3)]
        assert play.kept == [later[2], later[1], first]
        assert listing.users(
            generations.listing(play.at.root, home.name), look
        ).keys() == {first}

    def test_cannot(self, play: Series) -> None:
        """What cannot be told is a warning; the build was good."""
        play.build()
        state = play.at.root.generations / play.at.environment.name / generations.STATE
        state.write_text("[]")
        pruning.prune(play.console, play.at)
        assert "old builds stay" in play.out.getvalue()
