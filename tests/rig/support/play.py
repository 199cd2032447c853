# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build of which every part is a fake, and what people saw of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakescene import Stage, scene
from tools.rig.base.console import Console
from tools.rig.steps import build as step


class Play:
    """A scene, its fakes, and what people saw."""

    def __init__(self, folder: Path) -> None:
        self.at = scene(folder, jobs=2)
        self.stage = Stage(self.at)
        self.out = io.StringIO()

    def build(self, *, wheel_only: bool = False) -> dict[str, Any]:
        """Run a build."""
        console = Console(self.out, {})
        use = self.stage.tools
        done = step.build(console, self.at, wheel_only=wheel_only, use=use)
        return dict(done.to_json())

    @property
    def last(self) -> dict[str, Any]:
        """The newest record, as it is on the disk."""
        file = max(self.at.root.records.glob("*.json"), key=lambda p: p.stat().st_mtime)
        return dict(json.loads(file.read_text()))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a play below a fresh folder."""
    return Play(tmp_path)
