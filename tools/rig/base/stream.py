# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Runs a long program whose lines are seen at once, and which never outlives us."""

from __future__ import annotations

import collections
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

from tools.rig.base import idle, redact
from tools.rig.base.errors import Interrupted, unwritable
from tools.rig.base.process import (
    NOT_STARTED,
    Result,
    failure,
    has_ended,
    missing,
    not_started,
    opened,
    spawn,
)
from tools.rig.base.tree import GRACE_S, KILL_S, stop_tree

_OPEN_S = 0.5
_TAIL = 20
_MINDER = Path(__file__).with_name("minder.py")


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
    check: bool = False,
) -> Result:
    """Run a long program and pass on every line of its output as it comes.

    The program never outlives us: a minder (:mod:`tools.rig.base.minder`) ends its
    session when we are gone, even by SIGKILL. What the program leaves in its session
    when it ends is stopped as well.

    Parameters
    ----------
    on_line
        Called with each line of standard output and standard error.
    log
        Gets the same lines, secrets masked, at its end.
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
    check
        Raise instead of returning a result that is not ``ok``.

    Raises
    ------
    Interrupted
        On Ctrl-C, SIGTERM or SIGHUP (see :func:`signals_as_interrupts`), after the
        whole tree is gone.
    StepFailed
        When the log cannot be written (the tree is stopped first), and with `check`
        when the program failed.
    CannotError
        With `check`, when the program cannot be started; always when its minder cannot.
    """
    args = tuple(os.fspath(a) for a in argv)
    start = time.monotonic()
    tail: collections.deque[str] = collections.deque(maxlen=_TAIL)

    def passed_on(line: str, sink: FileIO) -> None:
        tail.append(line.rstrip("\r\n"))
        _write(sink, redact.text(line), log)
        on_line(tail[-1])

    with opened(log, append=True) as sink:
        absent = missing(args, env, cwd)
        if absent is not None:
            passed_on(f"{absent.what}\n", sink)
            if check:
                raise absent
            seconds = time.monotonic() - start
            return Result(args, NOT_STARTED, "", absent.what, seconds)
        with _minded(args, env, cwd, nice, first_to_die) as (proc, tether):
            try:
                if on_start:
                    on_start(proc.pid)
                for line in _lines(proc, idle_s):
                    passed_on(line, sink)
                proc.wait()
            except idle.Stalled:
                _end(proc, tether)
                seconds = time.monotonic() - start
                result = Result(args, -signal.SIGKILL, "", "", seconds, timed_out=True)
            except KeyboardInterrupt:
                _end(proc, tether)
                raise Interrupted(
                    "interrupted; every process of this step was stopped"
                ) from None
            except BaseException:
                _end(proc, tether)
                raise
            else:
                code, seconds = proc.returncode, time.monotonic() - start
                said = tail[-1] if code == NOT_STARTED and tail else ""
                result = Result(args, code, "", said, seconds)
    if check and not result.ok:
        raise failure(result, tail, log)
    return result


@contextlib.contextmanager
def _minded(
    args: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    nice: int,
    first_to_die: bool,
) -> Iterator[tuple[subprocess.Popen[str], FileIO]]:
    """Start a program below a minder; yield the minder and what keeps it waiting."""
    read_end, write_end = os.pipe()
    with FileIO(write_end, "w") as tether:
        words = [str(read_end), str(nice), "500" if first_to_die else "0", "--"]
        try:
            proc = spawn(
                [sys.executable, "-I", os.fspath(_MINDER), *words, *args],
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                merge=True,
                keep_fd=read_end,
            )
        except OSError as exc:
            raise not_started(args, cwd, exc) from exc
        finally:
            os.close(read_end)
        try:
            yield proc, tether
        finally:
            if proc.stdout is not None:
                proc.stdout.close()


def _lines(proc: subprocess.Popen[str], idle_s: float | None) -> Iterator[str]:
    """Yield what comes until the end of the output, or until only strangers hold it."""
    assert proc.stdout is not None

    def look(session: int) -> tuple[int, int]:
        if has_ended(proc):
            raise _LeftOpen
        return (0, 0) if idle_s is None else idle.session_activity(session)

    try:
        yield from idle.lines(
            proc.stdout.fileno(),
            proc.pid,
            math.inf if idle_s is None else idle_s,
            tick_s=_OPEN_S if idle_s is None else idle.TICK_S,
            activity=look,
        )
    except _LeftOpen:
        # the minder leaves nobody behind, unless it was killed itself
        stop_tree(proc.pid)


class _LeftOpen(Exception):
    """The program has ended, and a process outside its session holds its output."""


def _end(proc: subprocess.Popen[str], tether: FileIO) -> None:
    """Have the minder stop the tree; help when it does not, or when we are pressed."""
    tether.close()
    try:
        proc.wait(GRACE_S + KILL_S + 1.0)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            stop_tree(proc.pid, 0.0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        proc.wait(KILL_S)


def _write(sink: FileIO, text: str, path: Path) -> None:
    rest = memoryview(text.encode("utf-8", "replace"))
    try:
        while rest:
            rest = rest[sink.write(rest) or 0 :]
    except OSError as exc:
        raise unwritable(path, exc) from exc
