# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who is in the way of a build, and what is told before anything is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakescene import Stage, scene
from tests.rig.support.play import Play
from tests.rig.support.play import play as play
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, InUseError, UsageError
from tools.rig.guard.gate import InUse
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult, User
from tools.rig.steps import activate
from tools.rig.steps import build as step
from tools.rig.steps.switching import Wish


def test_read_only(tmp_path: Path) -> None:
    """A checkout that cannot be written to is refused before anything is done."""
    play = Play(tmp_path)
    seen = replace(play.at.placing.facts.checkout, writable=False)
    facts = replace(play.at.placing.facts, checkout=seen)
    play.at = replace(play.at, placing=replace(play.at.placing, facts=facts))
    with pytest.raises(CannotError, match="cannot be written to") as caught:
        play.build()
    assert "--source" in caught.value.hint
    assert [name for name, _ in play.stage.calls] == ["git"]
    assert not play.at.root.path.exists()


def test_forced(tmp_path: Path) -> None:
    """Whom ONECAT_FORCE=1 overrode stands in the summary and in the record."""
    play = Play(tmp_path)
    play.at = scene(tmp_path, jobs=2, force=True)
    play.stage = Stage(play.at)
    play.stage.users = (User(87221, 1, "alice", "vllm serve"),)
    over = "ONECAT_FORCE=1 over PID 87221 vllm serve"
    play.build()
    assert f"work-round   {over}" in play.out.getvalue()
    assert over in play.last["notes"]


class TestRefused:
    """What is told before anything is made."""

    def test_in_use(self, play: Play) -> None:
        """Somebody uses what is in force: the build is kept beside it."""
        before = play.at.environment
        user = User(87221, 1, "alice", "vllm serve")
        seen = ScanResult(users=(user,))
        play.stage.breaks, play.stage.error = "guard", InUse(before, seen)
        with pytest.raises(InUse) as caught:
            play.build(wheel_only=True)
        assert play.at.environment.resolve() == play.at.placing.bench
        name = play.last["id"]
        assert caught.value.hint == f"invoke activate --build {name} --when-free"
        assert f"the build {name} is kept" in caught.value.what
        assert caught.value.details == ("87221 vllm serve",)
        assert play.last["result"] == "kept" and play.last["exit_code"] == 4
        done = activate.activate(
            Console(play.out, {}),
            play.at,
            name[:-2],
            Wish(),
            guard=lambda *args, **how: ScanResult(),
        )
        assert done.active == name and done.verified
        assert play.at.environment.resolve().name == name

    def test_started_between(self, play: Play) -> None:
        """Who started between the last look and the switch has it taken back."""
        play.build(wheel_only=True)
        before = play.at.environment.resolve()
        play.stage.content = "other"
        looks = []

        def guard(console: Any, venv: Path, checkout: Any, **how: Any) -> ScanResult:
            looks.append(venv)
            if len(looks) == 3:
                user = User(87221, 1, "alice", "vllm serve")
                raise InUse(venv, ScanResult(users=(user,)))
            return ScanResult()

        use = replace(play.stage.tools, guard=guard)
        with pytest.raises(InUse, match="is kept"):
            step.build(Console(play.out, {}), play.at, wheel_only=True, use=use)
        assert play.at.environment.resolve() == before
        assert looks == [before] * 3

    def test_locked(self, play: Play) -> None:
        """Somebody builds it: the scan is not even made."""
        play.at.root.make(play.at.root.venvs)
        with BuildLock(play.at.environment, None, "first"), pytest.raises(InUseError):
            play.build()
        assert [name for name, _ in play.stage.calls] == ["git"]

    def test_force(self, tmp_path: Path) -> None:
        """ONECAT_FORCE=1 reaches the guard."""
        play = Play(tmp_path)
        play.at = scene(tmp_path, jobs=2, force="1")
        play.build()
        assert play.stage.named("guard")[0][2] is True

    def test_name(self, play: Play) -> None:
        """A path that no tool below can take is refused."""
        play.at = replace(play.at, checkout=play.at.checkout.with_name('a"b'))
        with pytest.raises(UsageError, match="CMake"):
            play.build()
        assert play.stage.calls == []
