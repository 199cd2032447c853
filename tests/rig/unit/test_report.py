# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How a command ends."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import report
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, StepFailed, UsageError
from tools.rig.base.report import run_command


@dataclass
class Outcome:
    """A result with an exit code of its own."""

    exit_code: int = 3

    def to_json(self) -> dict[str, Any]:
        """Return data."""
        return {"verdict": "cannot"}


@pytest.fixture
def screen() -> io.StringIO:
    """Return what people see."""
    return io.StringIO()


@pytest.fixture
def console(screen: io.StringIO) -> Console:
    """Return a console on that screen."""
    return Console(screen, {})


def crash(console: Console) -> None:
    """Stand for a bug of ours."""
    raise ZeroDivisionError("HF_TOKEN=abc broke")


def reports() -> list[Path]:
    """Return the saved reports of crashes."""
    return sorted(report.crash_folder(os.environ).glob("*"))


class TestResults:
    """What a command returns."""

    def test_exit_code_of_the_result(
        self, console: Console, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A result may carry a code; without --json stdout stays empty."""
        assert run_command(lambda c: Outcome(), console=console) == 3
        assert run_command(lambda c: None, console=console) == 0
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        ("result", "printed"),
        [(Outcome(), {"verdict": "cannot"}), (None, {}), ([1], [1]), ({"a": 1},) * 2],
    )
    def test_json(
        self,
        console: Console,
        capsys: pytest.CaptureFixture[str],
        result: Any,
        printed: Any,
    ) -> None:
        """With --json stdout holds the data and nothing else."""

        def body(console: Console) -> Any:
            console.say("for people")
            return result

        run_command(body, as_json=True, console=console)
        assert json.loads(capsys.readouterr().out) == printed

    def test_own_console(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a console people's text goes to stderr."""
        run_command(lambda c: c.say("x"))
        assert capsys.readouterr() == ("", "x\n")


class TestExpectedFailures:
    """Errors that a user is expected to meet."""

    def test_lines_and_code(self, console: Console, screen: io.StringIO) -> None:
        """The message ends in its hint, and no traceback is seen or saved."""

        def body(console: Console) -> None:
            raise UsageError("no such profile", usual="A slip.", hint="invoke --list")

        assert run_command(body, console=console) == 2
        assert screen.getvalue() == (
            "error: no such profile\n  A slip.\nhint: invoke --list\n"
        )
        assert reports() == []

    def test_json(self, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
        """With --json the error is the one document, secrets masked."""

        def body(console: Console) -> None:
            raise CannotError("no", usual="u", hint="h", details=["HF_TOKEN=abc"])

        assert run_command(body, as_json=True, console=console) == 3
        assert json.loads(capsys.readouterr().out) == {
            "error": {
                "what": "no",
                "usual": "u",
                "hint": "h",
                "details": ["HF_TOKEN=***"],
                "code": 3,
            }
        }

    def test_failure_while_data_is_made(
        self, console: Console, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A result that cannot be told is an error and not half a document."""

        class Broken:
            def to_json(self) -> None:
                raise StepFailed("no data")

        assert run_command(lambda c: Broken(), as_json=True, console=console) == 1
        assert "error" in json.loads(capsys.readouterr().out)

    @pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_signals(
        self, console: Console, screen: io.StringIO, sig: signal.Signals
    ) -> None:
        """Ctrl-C, a supervisor's SIGTERM and a lost terminal all end in 130."""
        before = signal.getsignal(sig)

        def body(console: Console) -> None:
            os.kill(os.getpid(), sig)
            threading.Event().wait(5)

        assert run_command(body, console=console) == ExitCode.INTERRUPTED
        assert screen.getvalue() == "error: interrupted\n"
        assert signal.getsignal(sig) is before


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


class TestClosedOutput:
    """``| head`` and pagers that were left."""

    def test_reader_gone(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A document that nobody reads any more is a failure with one line."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "w") as out:
            monkeypatch.setattr(sys, "stdout", out)
            assert run_command(lambda c: {}, as_json=True, console=console) == 1
        said = "error: cannot write the result to stdout: Broken pipe\nhint: "
        assert screen.getvalue().startswith(said)
        assert reports() == []

    @pytest.mark.parametrize("as_json", [False, True])
    def test_closed(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
        as_json: bool,
    ) -> None:
        """Only somebody who asked for data is told that stdout is closed."""
        monkeypatch.setattr(sys, "stdout", None)
        code = run_command(lambda c: {}, as_json=as_json, console=console)
        assert code == (ExitCode.FAILED if as_json else ExitCode.OK)
        assert ("Bad file descriptor" in screen.getvalue()) is as_json
        assert reports() == []

    @pytest.mark.parametrize("fails", [False, True])
    def test_nobody_listens(self, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
        """With a full stderr the body runs to its end, and its exit code counts."""
        done = []

        def body(console: Console) -> None:
            console.say("begun")
            done.append(True)
            if fails:
                raise CannotError("no place")

        with Path("/dev/full").open("w") as err:
            monkeypatch.setattr(sys, "stderr", err)
            code = run_command(body)
        assert done and code == (ExitCode.CANNOT if fails else ExitCode.OK)
        assert reports() == []

    @pytest.mark.parametrize("fails", [False, True])
    def test_full(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
        fails: bool,
    ) -> None:
        """A result that stdout does not take is a failure of the disk's, not ours."""

        def body(console: Console) -> dict[str, Any]:
            if fails:
                raise CannotError("no place")
            return {}

        with Path("/dev/full").open("w") as out:
            monkeypatch.setattr(sys, "stdout", out)
            code = run_command(body, as_json=True, console=console)
        assert code == (ExitCode.CANNOT if fails else ExitCode.FAILED)
        said = "cannot write the result to stdout: No space left on device"
        assert said in screen.getvalue()
        assert reports() == []

    def test_another_pipe(self, console: Console, screen: io.StringIO) -> None:
        """A broken pipe to something else is a bug like any other."""

        def body(console: Console) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        assert run_command(body, console=console) == 1
        assert len(reports()) == 1


class TestWatchParent:
    """A step ends with its parent."""

    def stopped(self, env: dict[str, str]) -> bool:
        """Say whether the watch sees a parent that is gone."""
        gone = threading.Event()
        thread = report.watch_parent(env, gone=gone.set, look_s=0.01)
        if thread is None:
            return False
        thread.join(0.2)
        return gone.is_set()

    @pytest.mark.parametrize("value", [None, "", "abc", "-1"])
    def test_not_asked(self, value: str | None) -> None:
        """Without a pid nothing is watched."""
        env = {} if value is None else {"RIG_PARENT": value}
        assert report.watch_parent(env) is None

    def test_parent_dies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new parent means that the old one is gone."""
        parents = iter([77, 77, 77])
        monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))
        monkeypatch.setattr(report, "_start_ticks", lambda pid: "5")
        assert self.stopped({"RIG_PARENT": "77"})

    def test_parent_lives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As long as it is there, nothing happens."""
        stop = threading.Event()
        monkeypatch.setattr(os, "getppid", lambda: 1 if stop.is_set() else 77)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: "5")
        assert not self.stopped({"RIG_PARENT": "77"})
        stop.set()

    def test_behind_a_wrapper(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a process in between, the named one is told from a later namesake."""
        starts = iter(["5", "5"])
        monkeypatch.setattr(os, "getppid", lambda: 88)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: next(starts, "6"))
        assert self.stopped({"RIG_PARENT": "77"})

    def test_dead_before_we_looked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An orphan whose parent is gone already stops at once."""
        monkeypatch.setattr(os, "getppid", lambda: 1)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: None)
        assert self.stopped({"RIG_PARENT": "77"})

    def test_above_the_parent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever stands above our parent may be watched, too."""
        ticks = {77: "5", 66: "3"}
        monkeypatch.setattr(os, "getppid", lambda: 77)
        monkeypatch.setattr(report, "_start_ticks", ticks.get)
        stop = threading.Event()
        thread = report.watch_parent(
            {"RIG_PARENT": "66:3,77"}, gone=stop.set, look_s=0.01
        )
        assert thread is not None and not stop.wait(0.1)
        del ticks[66]
        assert stop.wait(5)

    @pytest.mark.parametrize("ticks", [None, "4"])
    def test_died_before_us(
        self, monkeypatch: pytest.MonkeyPatch, ticks: str | None
    ) -> None:
        """One that is named with its start time need not be seen alive by us."""
        monkeypatch.setattr(os, "getppid", lambda: 77)
        monkeypatch.setattr(
            report, "_start_ticks", lambda pid: "5" if pid == 77 else ticks
        )
        assert self.stopped({"RIG_PARENT": "66:3,77"})

    def test_left_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable from somebody else's run ends nothing."""
        monkeypatch.setattr(os, "getppid", lambda: 88)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: None)
        assert report.watch_parent({"RIG_PARENT": "77"}) is None

    def test_a_command_obeys(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A running command is interrupted, and hands the variable to nobody."""
        monkeypatch.setenv("RIG_PARENT", str(2**22 + 1))
        monkeypatch.setattr(os, "getppid", lambda: 1)

        def body(console: Console) -> None:
            assert "RIG_PARENT" not in os.environ
            threading.Event().wait(5)

        assert run_command(body, console=console) == ExitCode.INTERRUPTED
        assert screen.getvalue() == "error: interrupted\n"

    def test_start_ticks(self) -> None:
        """A process has one start time; one that is not there has none."""
        own = report._start_ticks(os.getpid())
        assert own is not None and own.isdigit()
        assert report._start_ticks(2**22 + 1) is None
