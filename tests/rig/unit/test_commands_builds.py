# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``builds``: of which state root, and of which checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.command_desk import Desk
from tests.rig.support.command_desk import desk as desk
from tools.rig.base.errors import UsageError
from tools.rig.builds import survey
from tools.rig.builds.record import Record
from tools.rig.steps import commands
from tools.rig.steps.linked import Linked


class TestBuilds:
    """``builds``."""

    def test_none(self, desk: Desk) -> None:
        """Where nothing was built, that is said."""
        desk.patch.setattr(survey, "remembered_root", lambda file: (None, False))
        assert commands.builds(desk.console).to_json() == []
        assert desk.out.getvalue() == "no builds yet\n"

    @pytest.mark.parametrize("below", [False, True])
    def test_named(self, desk: Desk, monkeypatch: Any, below: bool) -> None:
        """The root that the user named is listed, or ours below the user's folder."""
        path = desk.at.root.path
        root = commands.StateRoot(path / survey.NAME if below else path)
        Record(root, "invoke build-sm70").end("failed", 1, error="broken")
        monkeypatch.setenv("ONECAT_LOCAL_ROOT", str(path))
        [found] = commands.builds(desk.console).to_json()
        assert found["result"] == "failed"
        assert "broken" in desk.out.getvalue()

    def test_of_a_gone_checkout(self, desk: Desk, monkeypatch: Any) -> None:
        """Builds of a checkout that was moved away are found by its old path."""
        root, gone = desk.at.root, desk.at.checkout.with_name("gone")
        place = root.generations / commands.place_id(gone)
        (place / "20260101-000000-aaaa").mkdir(parents=True)
        monkeypatch.setenv("ONECAT_LOCAL_ROOT", str(root.path))
        [found] = commands.builds(desk.console, source=str(gone)).to_json()
        assert found["id"] == "20260101-000000-aaaa"
        with pytest.raises(UsageError, match="does not exist"):
            commands.builds(desk.console, source=f"{gone}-never")

    def test_without_records(self, desk: Desk, monkeypatch: Any) -> None:
        """Builds whose records are gone are listed: they can be switched to."""
        root = desk.at.root
        (root.generations / "main-0a1b2c3d" / "20260101-000000-aaaa").mkdir(
            parents=True
        )
        monkeypatch.setenv("ONECAT_LOCAL_ROOT", str(root.path))
        [found] = commands.builds(desk.console).to_json()
        assert found["id"] == "20260101-000000-aaaa"

    def test_remembered(self, desk: Desk) -> None:
        """Without a name the root that was chosen before is listed."""
        Record(desk.at.root, "invoke build-sm70").end("done", 0, version="1.0")
        memory = survey.remembered_file(commands.os.environ)
        memory.parent.mkdir(parents=True)
        memory.write_text(json.dumps({"root": str(desk.at.root.path)}))
        desk.patch.setattr(survey, "remembered_root", _read_plainly)
        assert len(commands.builds(desk.console).to_json()) == 1
        assert "1.0" in desk.out.getvalue()

    def test_of_a_source(self, desk: Desk, tmp_path: Path) -> None:
        """Those of the checkout that is named, in the root where its .venv leads."""
        desk.patch.setattr(survey, "remembered_root", lambda file: (None, False))
        source = tmp_path / "c"
        with pytest.raises(UsageError, match="does not exist"):
            commands.builds(desk.console, source=str(source))
        source.mkdir()
        assert commands.builds(desk.console, source=str(source)).to_json() == []
        run = Record(desk.at.root, "invoke build-sm70")
        run.update(checkout=str(source))
        away = desk.at.root.venvs / "other-1"
        desk.linked[source] = Linked(away, source)
        assert commands.builds(desk.console, source=str(source)).to_json() == []
        name = commands.place_id(source)
        desk.linked[source] = Linked(desk.at.root.venvs / name, source)
        [row] = commands.builds(desk.console, source=str(source)).to_json()
        assert row["id"] == run.id and desk.console.flags == {"source": str(source)}


def _read_plainly(file: Path) -> tuple[Path, bool]:
    return Path(json.loads(file.read_text())["root"]), False
