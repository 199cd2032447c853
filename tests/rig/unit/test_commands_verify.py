# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``verify``: which environment is proved, and what is told where none is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakescene
from tests.rig.support.command_desk import Desk, make_python
from tests.rig.support.command_desk import desk as desk
from tests.rig.support.fakescene import KIT, chosen
from tools.rig.base.errors import CannotError
from tools.rig.builds import generations
from tools.rig.builds.generation import Generation
from tools.rig.builds.record import Record
from tools.rig.builds.target import HERE
from tools.rig.steps import commands, toolkit, verify
from tools.rig.steps.linked import Linked


def watched(desk: Desk) -> dict[str, Any]:
    """Let verify find all well; return what it will have been asked."""
    asked: dict[str, Any] = {}

    def look(console: Any, **what: Any) -> Any:
        asked.update(what)
        return fakescene.report("ok")

    desk.put(verify, "verify", look)
    return asked


class TestVerify:
    """``verify``."""

    @pytest.mark.parametrize("by", ["environment", "link"])
    def test_closed(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        """Another user's environment is not said to be missing."""
        closed = desk.at.root.path
        if by == "link":
            closed = tmp_path / "theirs"
            desk.at.placing.link.parent.mkdir(parents=True, exist_ok=True)
            desk.at.placing.link.symlink_to(closed / "venvs" / "x")
        closed.mkdir(parents=True)
        real = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: Path(path) != closed and real(path, mode)
        )
        with pytest.raises(CannotError, match="closed to you") as caught:
            commands.verify(desk.console)
        assert str(closed) in caught.value.what
        assert caught.value.hint.startswith("sudo -u ")

    @pytest.mark.parametrize(
        ("profile", "taken"), [("", True), ("v100-cu128", True), ("sample", False)]
    )
    def test_of_a_wheel(self, desk: Desk, profile: str, taken: bool) -> None:
        """Where our own .venv points comes before the sample's environment."""
        desk.at = replace(
            desk.at,
            is_sample=True,
            settings=commands.settings_for({"profile": profile}, {}),
        )
        other = desk.at.root.venvs / "rig-1"
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python").touch()
        make_python(desk)
        run = Record(desk.at.root, "invoke install-wheel")
        run.update(environment=str(other), profile="v100-cu128")
        desk.linked[HERE] = Linked(other, HERE)
        desk.put(toolkit, "plan", chosen())
        asked = watched(desk)
        assert commands.verify(desk.console).exit_code == 0
        if taken:
            assert asked["python"] == other / "bin" / "python"
            assert asked["profile"].name == "v100-cu128" and asked["checkout"] is None
        else:
            assert asked["python"] == desk.at.python

    def test_in_another_root(self, desk: Desk, tmp_path: Path) -> None:
        """Where the checkout's .venv points comes in when nothing is in this root."""
        other = tmp_path / "elsewhere" / "venvs" / "checkout-1"
        desk.linked[desk.at.checkout] = Linked(other, desk.at.checkout)
        with pytest.raises(CannotError, match=str(desk.at.environment)):
            commands.verify(desk.console)
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python").touch()
        roots: list[Path] = []

        def plan(settings: Any, profile: Any, root: Any, env: Any) -> Any:
            roots.append(root.path)
            return chosen(toolkit=KIT if root == desk.at.root else None)

        desk.put(toolkit, "plan", plan)
        asked = watched(desk)
        assert commands.verify(desk.console).exit_code == 0
        assert asked["python"] == other / "bin" / "python"
        assert asked["profile"] is desk.at.profile
        assert asked["checkout"] == desk.at.checkout
        assert roots == [tmp_path / "elsewhere", desk.at.root.path]
        said = f"looking at {other}, where .venv points"
        assert desk.out.getvalue().count(said) == 1
        make_python(desk)
        commands.verify(desk.console)
        assert asked["python"] == desk.at.python

    def test_no_environment(self, desk: Desk) -> None:
        """Without an environment there is nothing to prove."""
        with pytest.raises(CannotError, match="no environment") as caught:
            commands.verify(desk.console)
        assert caught.value.hint == "invoke build-sm70"

    def test_a_build_is_kept(self, desk: Desk) -> None:
        """Where only the link is gone, the way back costs seconds and no build."""
        name, place = "20260101-1", desk.at.environment.name
        folder = generations.folder_of(desk.at.root, place) / name
        folder.mkdir(parents=True)
        mark = generations.mark_text(Generation(name, folder, verified=True))
        (folder / generations.MARK).write_text(mark)
        with pytest.raises(CannotError, match="no environment") as caught:
            commands.verify(desk.console)
        assert caught.value.hint == f"invoke activate --build {name}"
        assert name in caught.value.usual

    def test_no_toolkit(self, desk: Desk) -> None:
        """Without cuobjdump nothing can be listed."""
        make_python(desk)
        desk.put(toolkit, "plan", chosen(toolkit=None))
        with pytest.raises(CannotError, match="cuobjdump"):
            commands.verify(desk.console)

    @pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("no code", 1)])
    def test_verdict(self, desk: Desk, verdict: str, code: int) -> None:
        """A build that is not proved ends with 1 and what to do."""
        make_python(desk)
        desk.put(toolkit, "plan", chosen())
        desk.put(verify, "verify", fakescene.report(verdict))
        got = commands.verify(desk.console)
        assert got.exit_code == code and got.to_json()["ok"] is (code == 0)
        assert ("hint: invoke build-sm70" in desk.out.getvalue()) is (code == 1)
