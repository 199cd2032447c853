# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starting programs: exact arguments, and what each kind of failure says.

Whole trees of real processes are in ``tests/rig/real/test_run_tree.py``.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess
from pytest_subprocess.fake_popen import FakePopen

from tests.rig.support.alive import alive
from tools.rig.base import run as runs
from tools.rig.base import tree
from tools.rig.base.errors import CannotError, Interrupted, RigError, StepFailed
from tools.rig.base.process import Result, failure, missing, not_started
from tools.rig.base.run import run, stream


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


@pytest.mark.allow_process
class TestStream:
    """Long programs, through a real minder."""

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


class TestTree:
    """Sessions and signals."""

    def test_sessions_that_cannot_be_ours(self) -> None:
        """Sessions 0 and 1 hold the kernel, init and strangers."""
        assert tree.session_members(0) == tree.session_members(1) == []
        assert os.getpid() in tree.session_members(os.getsid(0))

    def test_our_own_session(self) -> None:
        """Nobody ends himself by a slip."""
        with pytest.raises(ValueError, match="lives in"):
            tree.stop_tree(os.getsid(0))

    def test_polite_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SIGTERM goes out once, SIGKILL to whatever is left, however often."""
        sent: list[tuple[int, int]] = []
        seen = [0]

        def members(session: int) -> list[int]:
            seen[0] += 1
            return [7, 8] if seen[0] < 9 else []

        monkeypatch.setattr(tree, "session_members", members)
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append((pid, sig)))
        tree.stop_tree(7, grace=0.05)
        assert sent[:2] == [(7, signal.SIGTERM), (8, signal.SIGTERM)]
        assert set(sent[2:]) == {(7, signal.SIGKILL), (8, signal.SIGKILL)}
        assert seen[0] == 9

    def test_gone_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who leaves on SIGTERM gets nothing else."""
        sent: list[int] = []
        left = iter([[7], [7], []])
        monkeypatch.setattr(tree, "session_members", lambda session: next(left))
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append(sig))
        tree.stop_tree(7)
        assert sent == [signal.SIGTERM]

    def test_second_interrupt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C in the pause leads to SIGKILL at once, and is not lost."""
        sent: list[int] = []
        left = iter([[7], [7], []])

        def sleep(seconds: float) -> None:
            if signal.SIGKILL not in sent:
                raise KeyboardInterrupt

        monkeypatch.setattr(tree, "session_members", lambda session: next(left))
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append(sig))
        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(KeyboardInterrupt):
            tree.stop_tree(7)
        assert sent == [signal.SIGTERM, signal.SIGKILL]

    @pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
    def test_signals(self, sig: signal.Signals) -> None:
        """Both signals become one interrupt, and the old handlers come back."""
        before = signal.getsignal(sig)
        with pytest.raises(KeyboardInterrupt), tree.signals_as_interrupts():
            os.kill(os.getpid(), sig)
            signal.sigtimedwait([], 1)
        assert signal.getsignal(sig) is before

    def test_nohup(self) -> None:
        """A lost terminal that the user wants to ignore is ignored."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with tree.signals_as_interrupts():
                os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_other_threads(self) -> None:
        """Outside the main thread nothing is changed and nothing breaks."""
        done = threading.Event()

        def body() -> None:
            with tree.signals_as_interrupts():
                done.set()

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        assert done.is_set()


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
