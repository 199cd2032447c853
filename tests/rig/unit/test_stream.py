# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Long programs, through a real minder.

Whole trees of real processes are in ``tests/rig/real/test_run_tree.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.alive import alive
from tools.rig.base.errors import CannotError, Interrupted, StepFailed
from tools.rig.base.process import Result
from tools.rig.base.run import stream


@pytest.mark.allow_process
class TestStream:
    """Lines, ends and failures."""

    def lines(
        self, tmp_path: Path, *words: str, **how: Any
    ) -> tuple[list[str], Result]:
        """Run a program and return its lines and its result."""
        said: list[str] = []
        got = stream(words, on_line=said.append, log=tmp_path / "l" / "log", **how)
        return said, got

    def test_lines_and_log(self, tmp_path: Path) -> None:
        """Both outputs come line by line; the log holds them with secrets masked."""
        script = "echo one; echo HF_TOKEN=abc >&2; printf last; exit 3"
        said, got = self.lines(tmp_path, "sh", "-c", script)
        assert said == ["one", "HF_TOKEN=abc", "last"]
        assert (got.code, got.out, got.err) == (3, "", "")
        assert (tmp_path / "l/log").read_text() == "one\nHF_TOKEN=***\nlast"

    def test_log_is_continued(self, tmp_path: Path) -> None:
        """Several programs share one log."""
        self.lines(tmp_path, "echo", "one")
        self.lines(tmp_path, "echo", "two")
        assert (tmp_path / "l/log").read_text() == "one\ntwo\n"

    def test_environment_folder_and_priority(self, tmp_path: Path) -> None:
        """The program runs where and as it was told, and dies before a server does."""
        script = "pwd; echo $A; nice; cat /proc/self/oom_score_adj; ls /proc/self/fd"
        sessions: list[int] = []
        said, got = self.lines(
            tmp_path,
            "sh",
            "-c",
            script,
            env={"A": "ü b", "PATH": os.environ["PATH"]},
            cwd=tmp_path,
            nice=3,
            first_to_die=True,
            on_start=sessions.append,
        )
        assert said[:2] == [str(tmp_path), "ü b"]
        assert int(said[2]) >= 3 and said[3] == "500"
        # ls opens one itself
        assert said[4:] == ["0", "1", "2", "3"]
        assert got.ok and sessions[0] > 1

    def test_signal_is_said_as_a_shell_says_it(self, tmp_path: Path) -> None:
        """A killed program is 128 and the signal's number here."""
        assert self.lines(tmp_path, "sh", "-c", "kill -9 $$")[1].code == 137

    def test_not_found(self, tmp_path: Path) -> None:
        """A missing program is told without a minder, in the log as well."""
        said, got = self.lines(tmp_path, "no-such-program")
        assert got.code == 127 and said == [got.err]
        assert got.err in (tmp_path / "l/log").read_text()
        with pytest.raises(CannotError, match="it is not on the PATH"):
            self.lines(tmp_path, "no-such-program", check=True)

    def test_not_started_by_the_minder(self, tmp_path: Path) -> None:
        """What only shows when it is tried comes back from the minder."""
        (tmp_path / "x").write_text("#!/no/such/interpreter\n")
        (tmp_path / "x").chmod(0o755)
        said, got = self.lines(tmp_path, str(tmp_path / "x"))
        assert got.code == 127 and got.err.startswith("cannot start ")
        with pytest.raises(CannotError):
            self.lines(tmp_path, str(tmp_path / "x"), check=True)

    def test_check(self, tmp_path: Path) -> None:
        """A failed program with `check` is an error that names the log."""
        with pytest.raises(StepFailed, match="exit status 3") as caught:
            self.lines(tmp_path, "sh", "-c", "echo why; exit 3", check=True)
        assert caught.value.details == ("why",)
        assert caught.value.hint == f"less {tmp_path}/l/log"

    def test_no_log(self, tmp_path: Path) -> None:
        """A log that cannot be opened stops nothing, for nothing was started."""
        (tmp_path / "l").write_text("")
        with pytest.raises(StepFailed, match="cannot write"):
            self.lines(tmp_path, "echo", "x")

    @pytest.mark.parametrize(
        ("raised", "seen"),
        [(KeyboardInterrupt, Interrupted), (ValueError, ValueError)],
    )
    def test_error_in_a_callback(
        self, tmp_path: Path, raised: type[BaseException], seen: type[BaseException]
    ) -> None:
        """Whatever goes wrong on our side, the program is gone afterwards."""
        pids: list[int] = []

        def on_line(line: str) -> None:
            pids.append(int(line))
            raise raised

        with pytest.raises(seen):
            stream(
                ["sh", "-c", "echo $$; sleep 62"], on_line=on_line, log=tmp_path / "log"
            )
        assert not alive(pids[0])

    def test_stuck(self, tmp_path: Path) -> None:
        """A program without any sign of life is ended."""
        said, got = self.lines(tmp_path, "sh", "-c", "echo $$; sleep 63", idle_s=0.3)
        assert got.timed_out and got.code == -signal.SIGKILL
        assert not alive(said[0])
        with pytest.raises(StepFailed, match="did not finish"):
            self.lines(tmp_path, "sleep", "64", idle_s=0.3, check=True)

    def test_helper_left_behind(self, tmp_path: Path) -> None:
        """What a finished program leaves in its session is ended with it."""
        said, got = self.lines(tmp_path, "sh", "-c", "sleep 65 & echo $!")
        assert got.ok and not alive(said[0])

    def test_stranger_left_behind(self, tmp_path: Path) -> None:
        """A daemon that keeps the output open does not hang us."""
        said, got = self.lines(tmp_path, "sh", "-c", "setsid sleep 5 & echo x")
        assert got.ok and said == ["x"] and got.seconds < 5

    def test_log_disk_fills(self) -> None:
        """A full disk ends the program and is named with the log."""
        with pytest.raises(StepFailed, match="No space left on device") as caught:
            stream(["yes"], on_line=lambda line: None, log=Path("/dev/full"))
        assert "/dev/full" in caught.value.what

    def test_second_interrupt(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever presses Ctrl-C twice does not wait for a stubborn program."""
        script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
        pids: list[int] = []
        waits = iter([KeyboardInterrupt])
        wait = subprocess.Popen.wait

        def impatient(self: Any, timeout: float | None = None) -> int:
            for press in waits:
                raise press
            return wait(self, timeout)

        def on_line(line: str) -> None:
            pids.append(int(line))
            monkeypatch.setattr(subprocess.Popen, "wait", impatient)
            raise KeyboardInterrupt

        with pytest.raises(Interrupted):
            stream(["sh", "-c", script], on_line=on_line, log=tmp_path / "log")
        assert not alive(pids[0])
