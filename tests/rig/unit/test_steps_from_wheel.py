# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A wheel that was downloaded, on the road of a build."""

from __future__ import annotations

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
