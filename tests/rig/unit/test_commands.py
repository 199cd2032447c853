# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From typed words to a step: each command finds its scene and calls one step."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.command_desk import Desk, never
from tests.rig.support.command_desk import desk as desk
from tests.rig.support.fakescene import KIT, chosen
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.builds import survey
from tools.rig.builds.place import Environment
from tools.rig.steps import build, commands, git_safe, plan, shim, toolkit, venv


def test_build(desk: Desk) -> None:
    """The whole scene, laid out and with a Python, goes to the build."""
    desk.put(build, "build")
    typed = {"jobs": "3", "profile": "sample", "source": ""}
    got = commands.build(desk.console, True, False, **typed)
    assert got.args == (desk.console, desk.at)
    assert got.words == (("wheel_only", True), ("when_free", False))
    assert desk.asked["settings"].jobs == 3
    assert desk.asked["settings"].profile == "sample"
    assert desk.asked["lay_out"] and desk.asked["python"]


def test_plan(desk: Desk) -> None:
    """It looks only, and prints where things will lie before what will be done."""

    class Made:
        def lines(self) -> list[str]:
            return ["the plan"]

    desk.put(plan, "preview", Made())
    commands.plan(desk.console, False)
    assert desk.asked["lay_out"] is False and desk.asked["python"] is True
    lines = desk.out.getvalue().splitlines()
    assert lines[-1] == "the plan" and lines[0].startswith("root: ")


@pytest.mark.parametrize("name", ["plan", "in_use", "verify"])
def test_who_reads(desk: Desk, name: str) -> None:
    """What only reads says so to the choice of the place; what makes does not."""
    there = desk.at.placing.facts
    desk.patch.setattr(survey, "facts", lambda *args, **how: there)
    desk.put(plan, "preview", never)
    with contextlib.suppress(CannotError, StepFailed):
        getattr(commands, name)(desk.console, *([False] if name == "plan" else []))
    assert desk.asked["seams"].facts() == replace(there, reading=True)
    desk.put(toolkit, "plan", "the plan")
    desk.put(toolkit, "act")
    commands.toolkit(desk.console)
    assert desk.asked["seams"] == commands.scenes.Seams()


def test_toolkit(desk: Desk) -> None:
    """The plan of the pair is acted upon."""
    desk.put(toolkit, "plan", "the plan")
    desk.put(toolkit, "act")
    got = commands.toolkit(desk.console)
    assert got.args[1] == "the plan" and got.args[4] is desk.at.root
    assert desk.asked["python"] is False


class TestShim:
    """``shim-glibc``."""

    def test_probed(self, desk: Desk) -> None:
        """The pair that is here is probed with its own variables."""
        desk.put(toolkit, "plan", chosen())
        desk.put(shim, "shim")
        got = commands.shim(desk.console).data["args"]
        assert got[1]["root"] == KIT.root
        assert got[3]["CUDA_HOME"] == str(KIT.root)
        assert got[4] == desk.at.root.shims and desk.at.root.shims.is_dir()

    def test_no_toolkit(self, desk: Desk) -> None:
        """Without a toolkit it is said how to get one."""
        desk.put(toolkit, "plan", chosen(toolkit=None))
        with pytest.raises(CannotError) as caught:
            commands.shim(desk.console)
        assert caught.value.hint == "invoke cuda-toolkit"


def test_git_safe(desk: Desk) -> None:
    """Git is asked about the checkout and the folder of its dependencies."""
    desk.put(git_safe, "git_safe")
    got = commands.git_safe(desk.console).data["args"]
    assert got[1] == [desk.at.checkout, desk.at.deps]
    assert got[3] == desk.at.root.shims


def test_venv(desk: Desk) -> None:
    """The environment is made while its lock is held, and moved once nobody uses it."""
    at = desk.at
    locks: list[list[Path]] = []
    asked: list[Any] = []

    def act(placing: Any, console: Any, *, before_moving: Any, **how: Any) -> Any:
        assert how["relink"]
        locks.append(sorted(at.root.venvs.glob(".*.json")))
        before_moving()
        return Environment(
            at.root,
            at.environment,
            at.python,
            "3.12.4",
            None,
            (),
            at.deps,
            at.placing.bench,
        )

    def guard(console: Any, place: Path, checkout: Path, **how: Any) -> None:
        asked.append((place, checkout, how))

    desk.put(venv, "act", act)
    got = venv.guarded(desk.console, at, guard=guard).to_json()
    assert asked == [(at.environment, at.checkout, {"force": False, "patience": 0.0})]
    assert len(locks[0]) == 1 and not list(at.root.venvs.glob(".*.json"))
    locks.clear()
    got = commands.venv(desk.console).to_json()
    assert got["environment"] == str(at.environment)
    assert len(locks[0]) == 1 and not list(at.root.venvs.glob(".*.json"))
    assert "root: " in desk.out.getvalue()


def test_which_build() -> None:
    """Nothing is no build: it would mean the previous one."""
    assert commands.named("2026") == "2026"
    with pytest.raises(UsageError, match="which build"):
        commands.named("")
