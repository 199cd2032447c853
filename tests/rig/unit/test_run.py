# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starting programs: exact arguments, and what each kind of failure says.

Whole trees of real processes are in ``tests/rig/real/test_run_tree.py``.
"""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess
from pytest_subprocess.fake_popen import FakePopen

from tests.rig.support.alive import alive
from tools.rig.base import run as runs
from tools.rig.base.errors import CannotError, Interrupted, RigError, StepFailed
from tools.rig.base.process import Result, failure, missing, not_started
from tools.rig.base.run import run


class TestRun:
    """Short programs."""

    def test_exact_arguments(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Arguments go out as a list, and nothing is added."""
        fp.register(["prog", str(tmp_path / "a b"), "'"], stdout="out\n", stderr="err")
        got = run(["prog", tmp_path / "a b", "'"], env={"A": "1"}, cwd=tmp_path)
        assert got.ok and (got.out, got.err, got.code) == ("out\n", "err", 0)
        assert got.argv == ("prog", str(tmp_path / "a b"), "'")
        (call,) = fp.calls
        assert list(call) == ["prog", str(tmp_path / "a b"), "'"]

    def test_how_it_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No shell, no terminal, a whole environment or our own."""
        seen: list[dict[str, Any]] = []

        def popen(words: list[str], **how: Any) -> None:
            seen.append({"words": words, **how})
            raise FileNotFoundError(2, "x")

        monkeypatch.setattr(subprocess, "Popen", popen)
        run(["prog"], env={"A": "1"})
        run(["prog"], input_text="x")
        assert [s["env"] for s in seen] == [{"A": "1"}, None]
        assert [s["stdin"] for s in seen] == [subprocess.DEVNULL, subprocess.PIPE]
        assert all(s["start_new_session"] for s in seen)
        assert all("shell" not in s for s in seen)

    def test_input(self, fp: FakeProcess) -> None:
        """Text goes to standard input."""
        fp.register(["prog"], stdin_callable=lambda text: {"stdout": text.upper()})
        assert run(["prog"], input_text="x").out == "X"

    def test_output_file(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Output may go straight into a file."""
        fp.register(["prog"], stdout=b"bytes", stderr="err")
        got = run(["prog"], output_file=tmp_path / "new" / "f")
        assert (got.out, got.err) == ("", "err")
        assert (tmp_path / "new" / "f").read_bytes() == b"bytes"

    def test_output_file_that_cannot_be(self, tmp_path: Path) -> None:
        """It is the file that is named then, and not the program."""
        with pytest.raises(StepFailed, match=f"cannot write {tmp_path}"):
            run(["prog"], output_file=tmp_path)

    def test_failure(self, fp: FakeProcess) -> None:
        """A status that is not 0 is a result, and with `check` an error."""
        fp.register(
            ["prog"], returncode=3, stdout="a\n" * 30, stderr="last", occurrences=2
        )
        assert run(["prog"]).code == 3
        with pytest.raises(
            StepFailed, match="prog failed with exit status 3"
        ) as caught:
            run(["prog"], check=True)
        assert len(caught.value.details) == 20
        assert caught.value.details[-1] == "last"

    def test_success_with_check(self, fp: FakeProcess) -> None:
        """A good result passes the check."""
        fp.register(["prog"])
        assert run(["prog"], check=True).ok

    def test_time_out(self, fp: FakeProcess) -> None:
        """What a fake says about time holds at once, and no real process is touched."""

        def late(process: Any) -> None:
            raise subprocess.TimeoutExpired("prog", 20)

        fp.register(["prog"], callback=late, occurrences=2)
        got = run(["prog"], timeout=20)
        assert got.timed_out and not got.ok and got.seconds < 5
        with pytest.raises(StepFailed, match="prog did not finish within"):
            run(["prog"], timeout=20, check=True)

    def test_interrupt(self, fp: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C passes on after the tree was told to stop."""

        def ctrl_c(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        fp.register(["prog"])
        monkeypatch.setattr(FakePopen, "communicate", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            run(["prog"])

    @pytest.mark.allow_process
    def test_real_time_out_keeps_the_output(self) -> None:
        """What came before the time was up is not lost, odd bytes included."""
        script = r"printf 'a\r\nb\377\n'; echo e >&2; sleep 60 & sleep 60"
        got = run(["sh", "-c", script], timeout=0.3)
        assert got.timed_out and got.seconds < 4
        assert (got.out, got.err) == ("a\nb\ufffd\n", "e\n")

    @pytest.mark.allow_process
    def test_a_stranger_that_keeps_the_output_open(self) -> None:
        """A daemon in a session of its own neither hangs us nor spoils the result."""
        script = "setsid sleep 2 & echo out"
        got = run(["sh", "-c", script], timeout=60)
        assert got.ok and got.out == "out\n" and got.seconds < 2

    @pytest.mark.allow_process
    def test_a_helper_that_keeps_the_output_open(self) -> None:
        """A helper left in the program's session is stopped."""
        got = run(["sh", "-c", "sleep 61 & echo $!"])
        assert got.ok and got.seconds < 4
        assert not alive(got.out.strip())

    @pytest.mark.allow_process
    def test_signals_are_negative(self) -> None:
        """A program that a signal ended says which."""
        assert run(["sh", "-c", "kill -9 $$"]).code == -9


class TestNotStarted:
    """Why a program does not start."""

    def reason(self, *args: Any, **kwargs: Any) -> CannotError:
        """Return the error for a real refusal of the kernel."""
        got = run(*args, **kwargs)
        assert (got.code, got.out, got.ok) == (127, "", False)
        with pytest.raises(CannotError) as caught:
            run(*args, check=True, **kwargs)
        assert caught.value.what == got.err
        return caught.value

    @pytest.mark.allow_process
    def test_unknown_program(self) -> None:
        """A name that is nowhere on the PATH can be installed."""
        error = self.reason(["no-such-program"], env={"PATH": "/bin"})
        assert error.what == "cannot start no-such-program: it is not on the PATH"
        assert error.hint == "install no-such-program and try again"

    @pytest.mark.allow_process
    def test_unknown_path(self, tmp_path: Path) -> None:
        """A path that leads nowhere is not called missing from the PATH."""
        error = self.reason([tmp_path / "x"])
        assert error.what == f"cannot start {tmp_path}/x: there is no such file"

    @pytest.mark.allow_process
    def test_unknown_folder(self, tmp_path: Path) -> None:
        """A folder to start in that is not there is not blamed on the program."""
        error = self.reason(["ls"], cwd=tmp_path / "a b")
        assert "there is no such folder" in error.what
        assert error.hint == f"ls -ld '{tmp_path}/a b'"

    @pytest.mark.allow_process
    def test_missing_interpreter(self, tmp_path: Path) -> None:
        """A script whose interpreter is gone exists, and the message knows that."""
        script = tmp_path / "x"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        error = self.reason([script])
        assert "interpreter" in error.what and error.hint == f"head -n 1 {script}"

    @pytest.mark.allow_process
    def test_not_allowed(self, tmp_path: Path) -> None:
        """Any other reason is the kernel's own word."""
        error = self.reason([tmp_path])
        assert error.what == f"cannot start {tmp_path}: Permission denied"

    def test_before_a_minder_is_asked(self, tmp_path: Path) -> None:
        """Programs are looked up with the PATH and the folder of the child."""
        (tmp_path / "prog").write_text("")
        (tmp_path / "prog").chmod(0o755)
        assert missing(["prog"], {"PATH": str(tmp_path)}, None) is None
        assert missing(["./prog"], None, tmp_path) is None
        assert missing(["./prog"], None, Path("/")) is not None
        assert missing(["prog"], {}, None) is not None
        assert missing(["sh"], None, None) is None
        assert missing(["sh"], None, tmp_path / "x") is not None

    def test_too_long(self) -> None:
        """An argument list that the kernel refuses is told in its words."""
        exc = OSError(errno.E2BIG, "Argument list too long")
        assert not_started(["p"], None, exc).what == (
            "cannot start p: Argument list too long"
        )


class TestFailure:
    """Words for a bad result."""

    @pytest.mark.parametrize("code", [-9, 137])
    def test_killed(self, code: int) -> None:
        """A kill that nobody here sent is most often the kernel's."""
        error = failure(Result(("cc1plus",), code, "", "", 1.0), [], Path("/l o g"))
        assert "memory ran out" in error.usual
        assert error.hint == "less '/l o g'"

    def test_time_out(self) -> None:
        """Our own kill is not called that."""
        error = failure(Result(("x",), -9, "", "", 7.0, timed_out=True), [])
        assert error.what == "x did not finish within 7 s" and error.usual == ""

    def test_not_started(self) -> None:
        """127 with our own reason is the machine's fault, any other 127 is not."""
        ours = failure(Result(("x",), 127, "", "cannot start x: no", 1.0), [])
        assert isinstance(ours, CannotError)
        theirs = failure(Result(("sh",), 127, "", "sh: x: not found", 1.0), ["sh: x"])
        assert isinstance(theirs, StepFailed)


def test_environment_difference() -> None:
    """A record shows what was added, changed and taken away."""
    base = {"A": "1", "B": "2", "C": "3"}
    assert runs.env_difference({"A": "1", "B": "x", "D": "4"}, base) == {
        "B": "x",
        "C": None,
        "D": "4",
    }


def test_door_for_everybody() -> None:
    """What others import from here stays here."""
    for name in ("Result", "GRACE_S", "stop_tree", "session_members", "stream"):
        assert hasattr(runs, name)
    assert issubclass(Interrupted, RigError)


def test_abandonable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that may be left behind never stands on the disk that hangs."""
    seen: dict[str, Any] = {}

    def popen(words: list[str], **how: Any) -> str:
        seen.update(how, words=words)
        return "child"

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert str(runs.spawn_abandonable(["x"], env={})) == "child"
    assert (seen["words"], seen["cwd"], seen["env"]) == (["x"], "/", {})
