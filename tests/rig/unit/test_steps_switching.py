# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is new in a build is switched on, and what was installed by hand comes along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.play_series import Series
from tests.rig.support.play_series import play as play
from tools.rig.base.errors import StepFailed
from tools.rig.steps import build as step


class TestNothingNew:
    """A build whose wheel holds what is in force."""

    @pytest.mark.parametrize("wheel_only", [True, False])
    def test_stays(self, play: Series, wheel_only: bool) -> None:
        """No environment is made, nobody is asked, the spare wheel is gone."""
        first = play.build(wheel_only=wheel_only)
        second = play.again(wheel_only=wheel_only)
        assert second["unchanged"] == first["id"] == play.active
        assert second["result"] == "done" and second["wheel"] == first["wheel"]
        asked = [name for name, _ in play.stage.calls]
        assert asked[-1] == "compile" and "venv" not in asked and "guard" not in asked
        assert not (play.at.root.artifacts / second["id"]).exists()
        assert "nothing changed" in play.out.getvalue()

    def test_other_mode(self, play: Series) -> None:
        """A generation of the same wheel is no overlay."""
        play.build(wheel_only=True)
        assert "unchanged" not in play.again(wheel_only=False)

    def test_library_gone(self, play: Series) -> None:
        """An overlay whose libraries were removed or replaced is put there again."""
        play.build(wheel_only=False)
        library = play.at.checkout / "rig_sample" / "_C.abi3.so"
        library.unlink()
        assert "unchanged" not in play.again(wheel_only=False)
        assert library.exists()

    def test_python_gone(self, play: Series) -> None:
        """One in force that does not work any more is not the same, and is replaced."""
        first = play.build()
        play.stage.state = "broken"
        second = play.again()
        assert "unchanged" not in second and play.active == second["id"] != first["id"]

    def test_other_commit(self, play: Series) -> None:
        """An overlay of another commit is another overlay."""
        play.build(wheel_only=False)
        play.stage.head = "badc0de"
        assert "unchanged" not in play.again(wheel_only=False)


class TestWaiting:
    """A build whose wheel holds what is kept and not in force."""

    def test_is_taken(self, play: Series) -> None:
        """What was kept when somebody was in the way is switched on as it is."""
        first = play.build()["id"]
        play.build()
        play.activate()
        assert play.active == first
        again = play.again()
        asked = [name for name, _ in play.stage.calls]
        assert "venv" not in asked and asked.count("guard") == 3
        assert again["generation"] != first and again["generation"] == play.active
        assert len(play.kept) == 2 and "is just the same" in play.out.getvalue()


class TestCarry:
    """What was installed by hand."""

    @pytest.fixture
    def ready(self, play: Series) -> Series:
        """Return a play with an overlay in force, that holds a debugger."""
        made = play.build(wheel_only=False)
        play.stage.packages[made["id"]] = {"debugger": "1"}
        return play

    def test_comes_along(self, ready: Series) -> None:
        """It is installed at its version, and without what it asks for."""
        ready.build(wheel_only=False)
        words = [detail[0] for detail in ready.stage.named("install")]
        assert ["--no-deps", "debugger==1"] in words
        assert "taken along: debugger==1" in ready.out.getvalue()

    def test_into_no_generation(self, ready: Series) -> None:
        """A generation holds what its wheel needs and nothing else."""
        ready.build(wheel_only=True)
        assert "taken along" not in ready.out.getvalue()
        ready.build(wheel_only=False)
        assert "taken along" not in ready.out.getvalue()

    def test_cannot_be_had(self, ready: Series) -> None:
        """It is told, and the build goes on."""
        use = ready.stage.tools
        ready.stage.content += "."

        def install(uv: Path, python: Path, words: Sequence[str], **how: Any) -> None:
            if "debugger==1" in words:
                raise StepFailed("no such version")

        done = step.build(
            ready.console,
            ready.at,
            wheel_only=False,
            use=replace(use, install=install),
        )
        assert done.to_json()["result"] == "done"
        assert "not taken along: debugger==1 (no such" in ready.out.getvalue()
