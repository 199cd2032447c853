# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds one after the other of which every part is a fake, and switches between."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.places import disk
from tests.rig.support.play import Play
from tools.rig.base.console import Console
from tools.rig.builds import generations, record
from tools.rig.guard.scan import ScanResult, User
from tools.rig.steps import activate
from tools.rig.steps import build as step
from tools.rig.steps.switching import Wish

ALICE = ScanResult(users=(User(87221, 1, "alice", "vllm serve"),))


class Series(Play):
    """A scene in which builds are made; each gets an id of its own by its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.console = Console(self.out, {})
        self.look = self.stage.tools.look

    def build(self, *, wheel_only: bool = True) -> dict[str, Any]:
        """Run a build whose wheel differs from every other."""
        self.stage.content += "."
        return self.again(wheel_only=wheel_only)

    def again(self, *, wheel_only: bool = True) -> dict[str, Any]:
        """Run a build whose wheel is that of the last one."""
        self.stage.calls.clear()
        use = replace(self.stage.tools, look=self.look)
        done = step.build(self.console, self.at, wheel_only=wheel_only, use=use)
        return dict(done.to_json())

    def activate(self, name: str = "", **wish: bool) -> activate.Activated:
        """Switch to a build, or back."""
        return activate.activate(
            self.console,
            self.at,
            name,
            Wish(**wish),
            guard=lambda *args, **how: ScanResult(),
            trust=lambda *args: self.stage.safe,
            head=lambda checkout, env: self.stage.head,
            disk=disk,
        )

    @property
    def active(self) -> str:
        """The id of what is in force."""
        return self.at.environment.resolve().name

    @property
    def kept(self) -> list[str]:
        """The ids of all generations."""
        return [
            g.id for g in generations.listing(self.at.root, self.at.environment.name)
        ]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Series:
    """Return a play below a fresh folder, whose ids follow one another."""
    numbers = itertools.count()
    monkeypatch.setattr(record, "_tail", lambda: f"{next(numbers):04x}")
    return Series(tmp_path)
