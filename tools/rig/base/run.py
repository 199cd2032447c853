# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The only place that starts a process.

Everything is an argument list, never a shell string. A child gets its own session, so
that a time-out, Ctrl-C or SIGTERM can end the whole tree below it: compilers start
compilers, and ``ninja`` outlives a ``pip`` that was killed alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.rig.base.process import (
    NOT_STARTED,
    failure,
    has_ended,
    not_started,
    opened,
    spawn,
)
from tools.rig.base.process import Result as Result
from tools.rig.base.stream import stream as stream
from tools.rig.base.tree import GRACE_S as GRACE_S
from tools.rig.base.tree import KILL_S
from tools.rig.base.tree import session_members as session_members
from tools.rig.base.tree import signals_as_interrupts as signals_as_interrupts
from tools.rig.base.tree import stop_tree as stop_tree

LINGER_S = 0.5
"""Seconds that the output may stay open after the program itself has ended."""


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

    Output is read as UTF-8 and what is none becomes U+FFFD. A program that ends while
    something below it keeps the output open is not waited for: what its session still
    holds is stopped.

    Parameters
    ----------
    argv
        The program and its arguments. A program without a slash is looked up on the
        PATH of `env`.
    env
        The whole environment of the child; None means our own.
    timeout
        Seconds after which the whole tree is ended; the result then says `timed_out`
        and holds what was printed until then.
    check
        Raise instead of returning a result that is not ``ok``.
    input_text
        Text for standard input; None connects it to /dev/null.
    output_file
        Standard output goes into this file as it is (bytes); ``out`` is then empty.

    Raises
    ------
    StepFailed
        With `check`, when the program failed or ran out of time; always when
        `output_file` cannot be written.
    CannotError
        With `check`, when the program cannot be started.
    """
    args = tuple(os.fspath(a) for a in argv)
    start = time.monotonic()
    with contextlib.ExitStack() as files:
        sink = files.enter_context(opened(output_file)) if output_file else None
        try:
            proc = spawn(
                args,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
                stdout=sink,
            )
        except OSError as exc:
            reason = not_started(args, cwd, exc)
            if check:
                raise reason from exc
            seconds = time.monotonic() - start
            return Result(args, NOT_STARTED, "", reason.what, seconds)
    try:
        out, err, timed_out = _collect(proc, input_text, timeout)
    except BaseException:
        try:
            stop_tree(proc.pid)
        finally:
            _forget(proc)
        raise
    code = -signal.SIGKILL if proc.returncode is None else proc.returncode
    result = Result(args, code, out, err, time.monotonic() - start, timed_out)
    if check and not result.ok:
        raise failure(result, [*out.splitlines(), *err.splitlines()])
    return result


def spawn_abandonable(
    args: Sequence[str], *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program that its caller may leave behind.

    See :mod:`tools.rig.base.abandon`.
    """
    return spawn(args, env=env, cwd="/", stdin=subprocess.PIPE)


def env_difference(
    env: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str | None]:
    """Return what `env` adds to or changes in `base`; None marks what it takes away."""
    diff: dict[str, str | None] = {k: v for k, v in env.items() if base.get(k) != v}
    diff.update({k: None for k in base if k not in env})
    return diff


def _collect(
    proc: subprocess.Popen[str], input_text: str | None, timeout: float | None
) -> tuple[str, str, bool]:
    """Return both outputs, and whether we ended the program because time was up."""
    left = math.inf if timeout is None else timeout
    ended = False
    while True:
        turn = min(LINGER_S, left)
        try:
            out, err = proc.communicate(input_text, timeout=turn)
            return out or "", err or "", False
        except subprocess.TimeoutExpired as exc:
            said = exc
        input_text = None
        left -= turn
        if said.timeout != turn:
            # a fake that says so for reasons of its own
            break
        if ended or left <= 0:
            ended = ended or has_ended(proc)
            break
        ended = has_ended(proc)
    timed_out = not ended
    stop_tree(proc.pid)
    try:
        out, err = proc.communicate(timeout=LINGER_S)
        return out or "", err or "", timed_out
    except subprocess.TimeoutExpired as exc:
        _forget(proc)
        return (
            _decoded(exc.output or said.output),
            _decoded(exc.stderr or said.stderr),
            timed_out,
        )


def _forget(proc: subprocess.Popen[str]) -> None:
    """Let go of a stopped program, also of one that hangs in the kernel."""
    for pipe in (proc.stdin, proc.stdout, proc.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        proc.wait(KILL_S)


def _decoded(said: bytes | str | None) -> str:
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    return (said or "").replace("\r\n", "\n").replace("\r", "\n")
