# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A wheel that was downloaded, on the road of a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fakescene
from tests.rig.support.play import Play
from tests.rig.support.play import play as play
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.steps import from_wheel


class TestFromWheel:
    """A downloaded wheel on the road of a build."""

    @pytest.fixture(autouse=True)
    def uv_is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let uv be found, wherever these tests run."""
        monkeypatch.setattr(from_wheel.uv, "program", lambda env: Path("/tools/uv"))

    def test_order(self, play: Play, tmp_path: Path) -> None:
        """A generation is made of it and switched on; the record says what it was."""
        wheel = fakescene.make_wheel(tmp_path)
        play.stage.made_notes = ("Python 3.11 instead of 3.12",)
        console = Console(play.out, {})
        got = from_wheel.install(console, play.at, wheel, use=play.stage.tools)
        assert [name for name, _ in play.stage.calls] == [
            "environment",
            "fit",
            "plan pair",
            "pair",
            "venv",
            "install wheel",
            *["guard"] * 3,
        ]
        assert got.version == "0.1.0"
        [(named, how)] = play.stage.named("install wheel")
        folder = play.at.environment.resolve()
        assert named == wheel and how["python"] == folder / "bin" / "python"
        assert (play.at.root.artifacts / folder.name / wheel.name).is_file()
        assert how["env"]["UV_CACHE_DIR"] == str(play.at.root.cache / "uv")
        assert play.last["result"] == "done" and play.last["version"] == "0.1.0"
        said = play.out.getvalue()
        assert "work-round   Python 3.11 instead of 3.12" in said
        assert str(play.at.environment) in said

    def installed(self, play: Play, wheel: Path) -> from_wheel.InstallResult:
        """Install a wheel, with calls of its own."""
        play.stage.calls.clear()
        console = Console(play.out, {})
        return from_wheel.install(console, play.at, wheel, use=play.stage.tools)

    def test_same_again(self, play: Play, tmp_path: Path) -> None:
        """The same wheel makes no second environment; what is there is proved again."""
        wheel = fakescene.make_wheel(tmp_path)
        assert self.installed(play, wheel).unchanged == ""
        first = play.at.environment.resolve()
        again = self.installed(play, wheel)
        assert [name for name, _ in play.stage.calls] == [
            *("environment", "fit", "plan pair", "pair", "verify")
        ]
        [checked] = play.stage.named("verify")
        assert checked["python"] == first / "bin" / "python"
        assert again.unchanged == first.name and again.to_json()["before"] is None
        assert play.at.environment.resolve() == first
        assert play.last["unchanged"] == first.name and play.last["result"] == "done"
        assert f"nothing changed: {first.name} stays in force" in play.out.getvalue()

    def test_same_as_a_kept_one(self, play: Play, tmp_path: Path) -> None:
        """One that was in force before is taken, and switched on."""
        wheels = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            wheels.append(fakescene.make_wheel(tmp_path / name, name))
        self.installed(play, wheels[0])
        first = play.at.environment.resolve()
        self.installed(play, wheels[1])
        assert play.at.environment.resolve() != first
        self.installed(play, wheels[0])
        assert play.at.environment.resolve() == first
        assert not play.stage.named("install wheel") and play.stage.named("guard")
        assert play.last["generation"] == first.name
        assert f"{first.name} is just the same, and is taken" in play.out.getvalue()

    @pytest.mark.parametrize("what", ["verdict", "python", "profile"])
    def test_not_the_same(self, play: Play, tmp_path: Path, what: str) -> None:
        """What was changed by hand or has another Python is installed anew."""
        wheel = fakescene.make_wheel(tmp_path)
        self.installed(play, wheel)
        first = play.at.environment.resolve()
        if what == "verdict":
            play.stage.verdicts = ["no sm_70"]
        elif what == "python":
            play.stage.python = "3.11.2"
        else:
            other = replace(play.at.profile, name="another")
            play.at = replace(play.at, profile=other)
        self.installed(play, wheel)
        assert play.at.environment.resolve() != first
        assert play.stage.named("install wheel")
        told = f"{first.name} is not what it was" in play.out.getvalue()
        assert told == (what == "verdict")

    @pytest.mark.parametrize("part", ["fit", "install wheel"])
    def test_fails(self, play: Play, tmp_path: Path, part: str) -> None:
        """A wheel that is refused leaves a record of it, and nothing was brought."""
        play.stage.breaks = part
        with pytest.raises(StepFailed):
            from_wheel.install(
                Console(play.out, {}), play.at, tmp_path, use=play.stage.tools
            )
        assert play.last["result"] == "failed"
        assert bool(play.stage.named("pair")) == (part != "fit")
