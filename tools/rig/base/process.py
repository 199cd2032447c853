# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One process: how it is started, what it leaves behind, and why it did not start.

Used by :mod:`tools.rig.base.run`, which is the door for everybody else.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from tools.rig.base.errors import CannotError, RigError, StepFailed, unwritable

NOT_STARTED = 127
"""Exit status that stands for a program that could not be started."""

_TAIL = 20
_NO_ROOM = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
"""Said of a program that cannot be started now, and can be later."""


@dataclass(frozen=True)
class Result:
    """What a finished process left behind.

    ``code`` is the exit status. Of a program that a signal ended it is minus the
    signal's number after :func:`run`, and 128 plus that number after :func:`stream`,
    which hears of it as a shell does. 127 stands for a program that could not be
    started; ``err`` then says why. ``timed_out`` says that we ended it ourselves.
    ``seconds`` is wall time.
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


def spawn(
    args: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdin: int,
    stdout: FileIO | None = None,
    merge: bool = False,
    keep_fd: int | None = None,
) -> subprocess.Popen[str]:
    """Start a program in a session of its own, its output a pipe read as UTF-8.

    Parameters
    ----------
    stdout
        Standard output goes there instead.
    merge
        Standard error goes where standard output goes.
    keep_fd
        The one descriptor that the child gets beside its standard three.

    Raises
    ------
    OSError
        When it cannot be started (see :func:`not_started`).
    """
    return subprocess.Popen(
        list(args),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        pass_fds=() if keep_fd is None else (keep_fd,),
    )


def has_ended(proc: subprocess.Popen[str]) -> bool:
    """Say whether the program has ended, without taking its pid out of use."""
    try:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, proc.pid, how) is not None
    except OSError:
        return proc.poll() is not None


def opened(path: Path, *, append: bool = False) -> FileIO:
    """Open a file for writing, unbuffered, and make the folder it lies in.

    Raises
    ------
    StepFailed
        When that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(path, "a" if append else "w")
    except OSError as exc:
        raise unwritable(path, exc) from exc


def missing(
    args: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> CannotError | None:
    """Say beforehand why a program cannot be started by a minder, which cannot tell."""
    if cwd is not None and not os.path.isdir(cwd):
        return not_started(args, cwd, FileNotFoundError())
    if "/" in args[0]:
        there = os.path.exists(os.path.join(cwd or ".", args[0]))
    else:
        path = (os.environ if env is None else env).get("PATH", os.defpath)
        there = shutil.which(args[0], path=path) is not None
    return None if there else not_started(args, cwd, FileNotFoundError())


def not_started(
    args: Sequence[str], cwd: str | os.PathLike[str] | None, exc: OSError
) -> CannotError:
    """Return the error for a program that the kernel refused to start in `cwd`."""
    program = args[0]
    if cwd is not None and not os.path.isdir(cwd):
        return CannotError(
            f"cannot start {program} in {os.fspath(cwd)}: there is no such folder",
            hint=f"ls -ld {shlex.quote(os.fspath(cwd))}",
        )
    name = Path(program).name
    if isinstance(exc, FileNotFoundError):
        if "/" not in program:
            why = f"cannot start {program}: it is not on the PATH"
        elif os.path.exists(os.path.join(cwd or ".", program)):
            return CannotError(
                f"cannot start {program}: what runs it (an interpreter in its first "
                "line, or a loader) is missing",
                hint=f"head -n 1 {shlex.quote(program)}",
            )
        else:
            why = f"cannot start {program}: there is no such file"
        return CannotError(why, hint=f"install {name} and try again")
    return CannotError(
        f"cannot start {program}: {exc.strerror}", hint=f"ls -l {shlex.quote(program)}"
    )


def no_room(result: Result) -> bool:
    """Say whether a program was not started since the machine is at its limits."""
    said = (os.strerror(number) for number in _NO_ROOM)
    return result.code == NOT_STARTED and any(why in result.err for why in said)


def failure(result: Result, tail: Sequence[str], log: Path | None = None) -> RigError:
    """Return the error for a `result` that is not ``ok`` and ended with `tail`."""
    program, code = result.argv[0], result.code
    hint = f"less {shlex.quote(os.fspath(log))}" if log else ""
    if result.timed_out:
        what = f"{program} did not finish within {result.seconds:.0f} s"
    elif code == NOT_STARTED and result.err.startswith("cannot start "):
        return CannotError(result.err, hint=hint)
    else:
        what = f"{program} failed with exit status {code}"
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and not result.timed_out
    return StepFailed(
        what,
        details=[*tail][-_TAIL:],
        usual="Something killed it: most often the kernel, because memory ran out."
        if killed
        else "",
        hint=hint,
    )
