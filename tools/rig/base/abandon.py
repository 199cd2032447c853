# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Asks a child process a question, and leaves the child behind when it hangs.

A process that waits for a dead network disk may be in uninterruptible sleep: SIGKILL
does nothing until the server answers. Waiting for its end would hang us too, so it is
killed, its pipe is closed and nobody joins it. What it printed until then is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from tools.rig.base import run

REAP_S = 0.3
"""Seconds that a killed child gets to be gone before it is left behind."""

_left: list[subprocess.Popen[str]] = []

Spawn = Callable[..., "subprocess.Popen[str]"]


def ask(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    input_text: str = "",
    env: Mapping[str, str] | None = None,
    spawn: Spawn = run.spawn_abandonable,
) -> run.Result:
    """Run a program for at most `timeout` seconds, whatever state it hangs in.

    Parameters
    ----------
    argv
        The program and its arguments; it starts in the folder ``/``, which is never
        the disk that hangs.
    timeout
        Seconds. After them the result says `timed_out` and holds what came until then.
    input_text
        Text for standard input.
    env
        The whole environment of the child; None means our own.
    spawn
        Starts the process.

    Raises
    ------
    OSError
        When the program cannot be started.
    """
    args = tuple(os.fspath(a) for a in argv)
    start = time.monotonic()
    proc = spawn(args, env=env)
    try:
        out, err = proc.communicate(input_text, timeout=timeout)
    except subprocess.TimeoutExpired as exc:
        leave(proc)
        said = exc.output or b""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return run.Result(
            args, -signal.SIGKILL, text, "", time.monotonic() - start, timed_out=True
        )
    except BaseException:
        leave(proc)
        raise
    return run.Result(args, proc.returncode, out, err, time.monotonic() - start)


def leave(proc: subprocess.Popen[str]) -> None:
    """Kill a process and its session; keep a handle on it only if it does not go."""
    for pid in {proc.pid, *run.session_members(proc.pid)}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for pipe in (proc.stdin, proc.stdout, proc.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        proc.wait(REAP_S)
    except subprocess.TimeoutExpired:
        _left.append(proc)
    _left[:] = [p for p in _left if p.poll() is None]


def left_behind() -> list[int]:
    """Return the pids of children that were left behind and are still there."""
    _left[:] = [p for p in _left if p.poll() is None]
    return [p.pid for p in _left]
