# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a failure says, and how it ends the command."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

import pytest

from tools.rig.base import errors


def test_message_has_three_parts_and_details() -> None:
    """What happened comes first, the command to type last."""
    error = errors.StepFailed(
        "it broke", usual="It does.", hint="mend it", details=iter(["one", "two"])
    )
    assert error.lines() == [
        "error: it broke",
        "  one",
        "  two",
        "  It does.",
        "hint: mend it",
    ]


def test_parts_that_are_not_known_are_left_out() -> None:
    """An error without a hint has no empty hint line."""
    assert errors.RigError("it broke").lines() == ["error: it broke"]
    assert str(errors.RigError("it broke")) == "it broke"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.RigError, 1),
        (errors.StepFailed, 1),
        (errors.UsageError, 2),
        (errors.CannotError, 3),
        (errors.InUseError, 4),
        (errors.Interrupted, 130),
    ],
)
def test_exit_codes_are_the_documented_ones(
    kind: type[errors.RigError], code: int
) -> None:
    """Scripts rely on these numbers."""
    assert kind("x").code == code
    assert issubclass(kind, errors.RigError)


def test_codes_without_an_error_of_their_own() -> None:
    """Success and 'nothing recognised' are results, not failures."""
    assert (errors.ExitCode.OK, errors.ExitCode.UNKNOWN) == (0, 5)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "df -h '/a b'"),
        (errno.EDQUOT, "df -h '/a b'"),
        (errno.EACCES, "ls -ld '/a b'"),
        (errno.EROFS, "findmnt --target '/a b'"),
        (errno.EEXIST, "ls -ld '/a b'"),
    ],
)
def test_unwritable(number: int, hint: str) -> None:
    """What to look at depends on why it could not be written."""
    exc = OSError(number, os.strerror(number))
    error = errors.unwritable(Path("/a b/c"), exc, "usual")
    assert error.what == f"cannot write /a b/c: {os.strerror(number)}"
    assert (error.usual, error.hint) == ("usual", hint)


@pytest.mark.parametrize(
    ("files", "free", "blocks", "inodes"),
    [
        (1000, 0, 1 << 20, True),
        (1000, 900, 1 << 20, False),
        (1000, 0, 0, False),
        (0, 0, 1 << 20, False),
    ],
)
def test_no_inodes(
    monkeypatch: pytest.MonkeyPatch, files: int, free: int, blocks: int, inodes: bool
) -> None:
    """A disk with bytes and without inodes is told from one without bytes."""
    disk = os.statvfs_result(
        (4096, 4096, 1 << 20, blocks, blocks, files, free, free, 0, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    exc = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error = errors.unwritable(Path("/a b/c"), exc)
    assert ("no inodes are left" in error.what) == inodes
    assert error.hint == f"df -{'i' if inodes else 'h'} '/a b'"


def test_a_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be asked is not said to lack inodes."""

    def refuse(path: object) -> None:
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(os, "statvfs", refuse)
    assert not errors.room.lacks_inodes(Path("/a"))


def test_odd_names_in_hints() -> None:
    """What a hint says can be typed, whatever signs are in the path."""
    odd = Path("/a b/it's")
    assert shlex.split(errors.put_aside(odd)) == ["mv", "/a b/it's", "/a b/it's.old"]
    assert shlex.split(errors.quoted(odd)) == ["/a b/it's"]
    assert errors.put_aside(Path("/a"), ".broken") == "mv /a /a.broken"
