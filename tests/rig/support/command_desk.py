# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A desk at which commands are typed: their scene and their steps are fakes."""

from __future__ import annotations

import io
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakescene import scene
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.steps import commands
from tools.rig.steps.linked import Linked


@dataclass(frozen=True)
class Answer:
    """What a faked step returns: the words it was called with."""

    args: tuple[Any, ...]
    words: tuple[tuple[str, Any], ...]


def fake(*args: Any, **words: Any) -> Answer:
    """Stand in for a step."""
    return Answer(args, tuple(words.items()))


class Desk:
    """A console, a scene, and what finding the scene was asked."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.at = scene(folder)
        self.patch = patch
        self.out = io.StringIO()
        self.console = Console(self.out, {})
        self.asked: dict[str, Any] = {}
        patch.setattr(commands.scenes, "find", self._find)
        # what the checkout of these tests has at .venv is no part of them
        self.linked: dict[Path, Linked] = {}
        patch.setattr(commands.linked, "of", lambda at, *_: self.linked.get(at))

    def _find(self, console: Console, settings: Any, **how: Any) -> Any:
        self.asked = {"settings": settings, **how}
        return self.at

    def put(self, module: types.ModuleType, name: str, answer: Any = fake) -> None:
        """Put a fake in the place of a step."""
        found = answer if callable(answer) else lambda *args, **words: answer
        self.patch.setattr(module, name, found)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a desk."""
    return Desk(tmp_path, monkeypatch)


def make_python(desk: Desk) -> None:
    """Let the scene have an environment with a Python in it."""
    desk.at.python.parent.mkdir(parents=True)
    desk.at.python.touch()


def never(*args: Any, **words: Any) -> Any:
    """Stand in for a step that is not to be reached."""
    raise StepFailed("this was not to be called")
