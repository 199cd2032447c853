# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``in-use``: which environments are looked at, and what the exit code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.command_desk import Desk
from tests.rig.support.command_desk import desk as desk
from tools.rig.builds.target import HERE
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.steps import commands, in_use
from tools.rig.steps.in_use import Report
from tools.rig.steps.linked import Linked


@pytest.mark.parametrize("free", [True, False])
def test_in_use(desk: Desk, free: bool) -> None:
    """Exit code 4 says that somebody uses it."""
    found = ScanResult((), (), 0, (), 0.1)
    holder: Any = None if free else "somebody"
    report = Report("/venv", None, found, holder, None)
    desk.put(in_use, "in_use", report)
    got = commands.in_use(desk.console)
    assert got.exit_code == (0 if free else 4)
    assert got.to_json()["venv"] == "/venv"
    assert desk.asked["lay_out"] is False and desk.asked["python"] is False


def test_in_use_of_a_wheel(desk: Desk) -> None:
    """The environment where our own .venv points is looked at too."""
    other = desk.at.root.venvs / "rig-1"
    other.mkdir(parents=True)
    desk.linked[HERE] = Linked(other, HERE)
    asked: list[tuple[Path, Path, bool]] = []

    def look(
        console: Any, place: Path, checkout: Path, *, only_if_used: bool
    ) -> Report:
        asked.append((place, checkout, only_if_used))
        holder: Any = "somebody" if place == other else None
        found = ScanResult((), (), 0, (), 0.1)
        return Report(str(place), None, found, holder, None)

    desk.put(in_use, "in_use", look)
    own = desk.at.environment
    got = commands.in_use(desk.console)
    assert asked == [(own, desk.at.checkout, True), (other, HERE, False)]
    assert got.exit_code == 4
    assert got.to_json()["venv"] == str(other) and got.to_json()["others"] == []
    own.mkdir(parents=True)
    got = commands.in_use(desk.console)
    assert asked[2:] == [(own, desk.at.checkout, False), (other, HERE, False)]
    assert got.exit_code == 4 and got.to_json()["others"][0]["venv"] == str(other)
    commands.in_use(desk.console, source=str(desk.at.checkout))


def test_in_use_of_a_moved_one(desk: Desk) -> None:
    """Who uses the checkout's libraries counts, also where no environment is."""
    other = desk.at.root.venvs / "rig-1"
    other.mkdir(parents=True)
    desk.linked[HERE] = Linked(other, HERE)
    user = User(7, 1, "alice", "python", maps=("a.so",))

    def look(targets: Targets) -> ScanResult:
        used = targets.checkout == desk.at.checkout
        return ScanResult((user,) if used else (), (), 0, (), 0.1)

    real = in_use.in_use
    desk.put(in_use, "in_use", lambda *args, **how: real(*args, look=look, **how))
    got = commands.in_use(desk.console)
    assert got.exit_code == 4 and got.to_json()["venv"] == str(desk.at.environment)
    assert "1 process(es) use" in desk.out.getvalue()
