# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Temporary folders: what killed runs left goes, and nothing else does."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from tools.rig.base import scratch

OLD = 1e9


def left(place: Path, name: str, at: float = OLD) -> Path:
    """Make what a killed run leaves."""
    folder = place / name
    folder.mkdir()
    (folder / "big.so").touch()
    os.utime(folder, (at, at))
    return folder


def test_goes_again(tmp_path: Path) -> None:
    """The folder is there for as long as one works in it."""
    with scratch.folder("wheel", tmp_path) as made:
        assert made.parent == tmp_path and made.name.startswith("rig-wheel-")
        (made / "x").touch()
    assert not any(tmp_path.iterdir())


def test_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place it lies among the temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch.folder("math") as made:
        assert made.parent == tmp_path


def test_what_a_killed_run_left(tmp_path: Path) -> None:
    """An old folder of the same name that nobody holds is taken away."""
    gone = left(tmp_path, "rig-wheel-abc")
    with scratch.folder("wheel", tmp_path):
        assert not gone.exists()


def test_what_stays(tmp_path: Path) -> None:
    """In use, young, of another name, a file or a link: none of it is touched."""
    used, other = left(tmp_path, "rig-wheel-used"), left(tmp_path, "rig-math-abc")
    young = left(tmp_path, "rig-wheel-young", at=4e9)
    plain, link = tmp_path / "rig-wheel-file", tmp_path / "rig-wheel-link"
    plain.touch()
    os.utime(plain, (OLD, OLD))
    link.symlink_to(other)
    os.utime(link, (OLD, OLD), follow_symlinks=False)
    fd = os.open(used, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with scratch.folder("wheel", tmp_path):
            pass
    finally:
        os.close(fd)
    assert (used / "big.so").exists() and (other / "big.so").exists()
    assert young.exists() and plain.exists() and link.is_symlink()


def test_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of somebody else's is not ours to take away."""
    theirs = left(tmp_path, "rig-wheel-theirs")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with scratch.folder("wheel", tmp_path):
        assert theirs.exists()


def test_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can tell who works in a folder, none is taken away."""
    kept = left(tmp_path, "rig-wheel-abc")

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with scratch.folder("wheel", tmp_path) as made:
        assert made.is_dir() and kept.exists()
