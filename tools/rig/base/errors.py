# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Every failure that a user is expected to meet, with the exit code that it ends in.

A message has three parts: what happened, what it usually means, and a last line ``hint:
<command to type>``. Anything that is not a :class:`RigError` is a bug of ours;
:mod:`tools.rig.base.report` saves its traceback to a file.
"""

from __future__ import annotations

import enum
import errno
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from tools.rig.base import room


class ExitCode(enum.IntEnum):
    """The exit codes of every command, as documented in the README."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANNOT = 3
    IN_USE = 4
    UNKNOWN = 5
    INTERRUPTED = 130


class RigError(Exception):
    """An expected failure.

    Parameters
    ----------
    what
        What happened, in one sentence.
    usual
        What that usually means. May be empty.
    hint
        A command to type, or the change to make. May be empty.
    details
        Lines to show below the message, as they are (compiler output, names of
        processes).
    """

    code = ExitCode.FAILED

    def __init__(
        self, what: str, *, usual: str = "", hint: str = "", details: Iterable[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.usual = usual
        self.hint = hint
        self.details = tuple(details)

    def lines(self) -> list[str]:
        """Return the message as it is printed, one string a line."""
        out = [f"error: {self.what}"]
        out += [f"  {line}" for line in self.details]
        if self.usual:
            out.append(f"  {self.usual}")
        if self.hint:
            out.append(f"hint: {self.hint}")
        return out


class StepFailed(RigError):
    """A step was tried and did not succeed."""


def quoted(path: Path) -> str:
    """Return a path as one types it: any sign may be in it, an apostrophe too."""
    return shlex.quote(os.fspath(path))


def put_aside(path: Path, end: str = ".old") -> str:
    """Return the command that gives a file or folder another name."""
    return f"mv {quoted(path)} {shlex.quote(f'{os.fspath(path)}{end}')}"


def unwritable(path: Path, exc: OSError, usual: str = "") -> StepFailed:
    """Return the error for what cannot be written, with the look that tells why."""
    folder = quoted(path.parent)
    looks = {
        errno.EACCES: f"ls -ld {folder}",
        errno.EPERM: f"ls -ld {folder}",
        errno.EROFS: f"findmnt --target {folder}",
        errno.ENOENT: f"ls -ld {folder}",
        errno.ENOTDIR: f"ls -ld {folder}",
        errno.EEXIST: f"ls -ld {folder}",
    }
    why = exc.strerror or str(exc)
    if exc.errno == errno.ENOSPC and room.lacks_inodes(path):
        why += f"; {room.NO_INODES}"
    return StepFailed(
        f"cannot write {path}: {why}",
        usual=usual,
        hint=looks.get(exc.errno or 0) or room.look(path.parent),
    )


class UsageError(RigError):
    """The command line, an environment variable or a settings file is wrong."""

    code = ExitCode.USAGE


class CannotError(RigError):
    """The machine cannot do it; the hint says what to change."""

    code = ExitCode.CANNOT


class InUseError(RigError):
    """Someone is using the environment, or holds its lock."""

    code = ExitCode.IN_USE


class Interrupted(RigError):
    """The user or a supervisor asked us to stop."""

    code = ExitCode.INTERRUPTED
