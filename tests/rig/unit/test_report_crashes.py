# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A bug of ours is saved for us, and told in one line."""

from __future__ import annotations

import io
import json
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.crashes import console as console
from tests.rig.support.crashes import crash, reports
from tests.rig.support.crashes import screen as screen
from tools.rig.base import report
from tools.rig.base.console import Console
from tools.rig.base.report import run_command


class TestCrashes:
    """Bugs of ours."""

    def test_saved(self, console: Console, screen: io.StringIO) -> None:
        """The traceback goes to a private file whose path is shown."""
        assert run_command(crash, console=console) == 1
        (path,) = reports()
        assert str(path) in screen.getvalue()
        assert "Traceback" not in screen.getvalue()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_content(self, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
        """The report has versions, command line and traceback, all secrets masked."""
        monkeypatch.setattr(sys, "orig_argv", ["invoke", "x", "--api-key", "s3cr3t"])
        run_command(crash, console=console)
        text = reports()[0].read_text()
        assert "command: invoke x --api-key '***'" in text
        assert "regex: " in text and "python: 3." in text
        assert "Traceback (most recent call last)" in text
        assert "HF_TOKEN=*** broke" in text and "abc" not in text

    def test_json(self, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
        """A program that reads our data hears of the crash, too."""
        assert run_command(crash, as_json=True, console=console) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["what"] == "unexpected ZeroDivisionError: HF_TOKEN=*** broke"
        assert error["code"] == 1

    def test_no_home(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """Where the state folder cannot be made, the temp folder serves."""
        (tmp_path / "file").write_text("")
        (tmp_path / "tmp").mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
        assert run_command(crash, console=console) == 1
        (path,) = (tmp_path / "tmp").iterdir()
        assert str(path) in screen.getvalue()

    def test_nowhere_to_write(
        self, console: Console, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk takes the report but not the message."""

        def full(*args: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tempfile, "mkstemp", full)
        assert run_command(crash, console=console) == 1
        assert "could not be saved (No space left on device)" in screen.getvalue()
        assert "ZeroDivisionError" in screen.getvalue()

    def test_folder_gone(
        self, console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A current folder that is deleted meanwhile is no second crash."""
        (tmp_path / "away").mkdir()
        monkeypatch.chdir(tmp_path / "away")

        def removed(console: Console) -> None:
            (tmp_path / "away").rmdir()
            crash(console)

        assert run_command(removed, console=console) == 1
        assert "folder: gone" in reports()[0].read_text()

    def test_no_folder_to_begin_in(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """A current folder that was replaced under us is told, and no crash."""
        (tmp_path / "away").mkdir()
        monkeypatch.chdir(tmp_path / "away")
        (tmp_path / "away").rmdir()
        assert run_command(crash, console=console) == 2
        assert "does not exist any more" in screen.getvalue()
        assert 'cd "$PWD"' in screen.getvalue()
        assert not reports()

    def test_folder_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A relative XDG_STATE_HOME counts as none."""
        monkeypatch.setenv("HOME", "/home/me")
        home = Path("/home/me/.local/state/1cat-rig/crashes")
        assert report.crash_folder({"XDG_STATE_HOME": "x"}) == home
        assert report.crash_folder({}) == home

    def test_a_package_that_is_not_there(self) -> None:
        """A version that cannot be told is said to be so."""
        assert report._version("no-such-package-at-all") == "not installed"
