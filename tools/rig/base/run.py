# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The only place that starts a process.

Everything is an argument list, never a shell string. A child gets its own session, so
that a time-out, Ctrl-C or SIGTERM can end the whole tree below it: compilers start
compilers, and ``ninja`` outlives a ``pip`` that was killed alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.rig.base import idle
from tools.rig.base.errors import CannotError, Interrupted, StepFailed

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL for a tree that is told to stop."""

_NOT_FOUND = 127
_MINDER = Path(__file__).with_name("minder.py")


@dataclass(frozen=True)
class Result:
    """What a finished process left behind.

    ``code`` is the exit status, negative for a signal, 127 when the program does not
    exist; ``timed_out`` says that we ended it ourselves. ``seconds`` is wall time.
    """

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether the process ended by itself with status 0."""
        return self.code == 0 and not self.timed_out


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    check: bool = False,
    input_text: str | None = None,
    output_file: Path | None = None,
) -> Result:
    """Run a program to its end and return its output.

    Parameters
    ----------
    argv
        The program and its arguments. A program without a slash is looked up on the
        PATH of `env`.
    env
        The whole environment of the child; None means our own.
    timeout
        Seconds after which the whole tree is ended; the result then says `timed_out`.
    check
        Raise instead of returning a result that is not ``ok``.
    input_text
        Text for standard input; None connects it to /dev/null.
    output_file
        Standard output goes into this file as it is (bytes); ``out`` is then empty.

    Raises
    ------
    StepFailed
        With `check`, when the program failed or ran out of time.
    CannotError
        With `check`, when the program does not exist.
    """
    args = tuple(os.fspath(a) for a in argv)
    start = time.monotonic()
    try:
        proc = _spawn(
            args,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
            output_file=output_file,
        )
    except OSError as exc:
        result = Result(args, _NOT_FOUND, "", str(exc), time.monotonic() - start)
        return _checked(result) if check else result
    timed_out = False
    try:
        out, err = proc.communicate(input_text, timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        stop_tree(proc.pid)
        out, err = _drain(proc)
    except BaseException:
        stop_tree(proc.pid)
        proc.wait()
        raise
    result = Result(
        args, proc.returncode, out or "", err or "", time.monotonic() - start, timed_out
    )
    return _checked(result) if check else result


def stream(
    argv: Sequence[str | os.PathLike[str]],
    *,
    on_line: Callable[[str], None],
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    nice: int = 0,
    first_to_die: bool = False,
    on_start: Callable[[int], None] | None = None,
    idle_s: float | None = None,
) -> Result:
    """Run a long program; every line of its output goes to `log` and to `on_line` as it
    comes.

    Parameters
    ----------
    nice
        Added to the niceness of the whole tree, so that a colleague's work comes first.
    first_to_die
        Raise ``oom_score_adj`` of the tree, so that the kernel ends it before a server
        that someone else runs.
    on_start
        Called once with the pid of the session that holds the program and everything
        below it.
    idle_s
        Seconds without any sign of life (see :mod:`tools.rig.base.idle`) after which
        the tree is ended, or left behind when it hangs in the kernel; the result then
        says `timed_out`. None waits for ever.

    Raises
    ------
    Interrupted
        On Ctrl-C, SIGTERM or SIGHUP (see :func:`signals_as_interrupts`), after the
        whole tree is gone.
    """
    args = tuple(os.fspath(a) for a in argv)
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    minded = [
        sys.executable,
        "-I",
        os.fspath(_MINDER),
        str(read_end),
        str(nice),
        "500" if first_to_die else "0",
        "--",
    ]
    with (
        log.open("a", encoding="utf-8", errors="replace") as sink,
        _closing(read_end, write_end),
    ):
        proc = _spawn(
            [*minded, *args],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            merge=True,
            keep_fd=read_end,
        )
        if on_start:
            on_start(proc.pid)
        try:
            assert proc.stdout is not None
            for line in idle.lines(proc.stdout.fileno(), proc.pid, idle_s):
                sink.write(line)
                sink.flush()
                on_line(line.rstrip("\r\n"))
            proc.wait()
        except idle.Stalled:
            stop_tree(proc.pid)
            # a child in uninterruptible sleep cannot be joined, so only the minder is
            with contextlib.suppress(subprocess.TimeoutExpired):
                proc.wait(GRACE_S)
            seconds = time.monotonic() - start
            return Result(args, -signal.SIGKILL, "", "", seconds, timed_out=True)
        except KeyboardInterrupt:
            stop_tree(proc.pid)
            proc.wait()
            raise Interrupted(
                "interrupted; every process of this step was stopped"
            ) from None
        except BaseException:
            stop_tree(proc.pid)
            proc.wait()
            raise
        finally:
            if proc.stdout is not None:
                proc.stdout.close()
    return Result(args, proc.returncode, "", "", time.monotonic() - start)


def spawn_abandonable(
    args: Sequence[str], *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program that its caller may leave behind (see
    :mod:`tools.rig.base.abandon`).
    """
    return _spawn(args, env=env, cwd="/", stdin=subprocess.PIPE)


def stop_tree(pid: int, grace: float = GRACE_S) -> None:
    """End the session that `pid` leads: SIGTERM, `grace` seconds, SIGKILL to what is
    left.

    Members are found by session id and not by parent, since a killed ``pip`` leaves its
    compilers to PID 1.
    """
    for sig, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 1.0)):
        members = session_members(pid)
        if not members:
            return
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, sig)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and session_members(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            time.sleep(0.02)


def session_members(session: int) -> list[int]:
    """Return the pids of living (not zombie) processes whose session id is `session`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(entry))
    return found


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt while a command runs, so that one
    road ends every tree.
    """

    def handler(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    for sig in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):
            kept[sig] = signal.signal(sig, handler)
    try:
        yield
    finally:
        for sig, old in kept.items():
            signal.signal(sig, old)


def env_difference(
    env: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str | None]:
    """Return what `env` adds to or changes in `base`; None marks a variable that was
    taken away.
    """
    diff: dict[str, str | None] = {k: v for k, v in env.items() if base.get(k) != v}
    diff.update({k: None for k in base if k not in env})
    return diff


def _spawn(
    args: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdin: int,
    merge: bool = False,
    keep_fd: int | None = None,
    output_file: Path | None = None,
) -> subprocess.Popen[str]:
    with contextlib.ExitStack() as files:
        stdout: int | IO[bytes] = subprocess.PIPE
        if output_file is not None:
            stdout = files.enter_context(output_file.open("wb"))
        return subprocess.Popen(
            list(args),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=() if keep_fd is None else (keep_fd,),
        )


@contextlib.contextmanager
def _closing(*fds: int) -> Iterator[None]:
    try:
        yield
    finally:
        for fd in fds:
            os.close(fd)


def _drain(proc: subprocess.Popen[str]) -> tuple[str, str]:
    """Collect what a stopped tree wrote; give up after a second when something outside
    it holds the pipe.
    """
    try:
        return proc.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        return "", ""


def _checked(result: Result) -> Result:
    if result.ok:
        return result
    program = result.argv[0]
    tail = [*result.out.splitlines(), *result.err.splitlines()][-20:]
    if result.code == _NOT_FOUND and not result.out:
        raise CannotError(
            f"cannot start {program}",
            details=tail,
            hint=f"install {Path(program).name} and try again",
        )
    if result.timed_out:
        raise StepFailed(
            f"{program} did not finish within {result.seconds:.0f} s", details=tail
        )
    raise StepFailed(f"{program} failed with exit status {result.code}", details=tail)
