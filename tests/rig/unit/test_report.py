# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How a command ends."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.crashes import console as console
from tests.rig.support.crashes import reports
from tests.rig.support.crashes import screen as screen
from tools.rig.base.console import Console
from tools.rig.base.errors import (
    CannotError,
    ExitCode,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.base.report import run_command


@dataclass
class Outcome:
    """A result with an exit code of its own."""

    exit_code: int = 3

    def to_json(self) -> dict[str, Any]:
        """Return data."""
        return {"verdict": "cannot"}


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

    @pytest.mark.parametrize("hint", ["invoke activate --build 1 --when-free", ""])
    def test_one_hint(
        self,
        console: Console,
        screen: io.StringIO,
        capsys: pytest.CaptureFixture[str],
        hint: str,
    ) -> None:
        """The document names the command as the screen does, typed flags included."""

        def body(console: Console) -> None:
            console.flags = {"profile": "sample"}
            raise InUseError("in use", hint=hint)

        assert run_command(body, as_json=True, console=console) == 4
        told = json.loads(capsys.readouterr().out)["error"]["hint"]
        with_flag = "invoke activate --profile sample --build 1 --when-free"
        assert told == (with_flag if hint else "")
        assert (f"hint: {told}\n" in screen.getvalue()) == bool(hint)

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
