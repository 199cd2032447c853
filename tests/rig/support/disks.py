# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Small, full, read-only and memory disks for tests; each is undone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path


def refused(action: contextlib.AbstractContextManager[Path]) -> str:
    """Return why a disk of this kind cannot be had here, or nothing; tries it."""
    try:
        with action:
            return ""
    except (OSError, subprocess.CalledProcessError) as exc:
        said = getattr(exc, "stderr", "") or str(exc)
        return str(said).strip().splitlines()[0] if said else type(exc).__name__


@contextlib.contextmanager
def ext4(folder: Path, mib: int) -> Iterator[Path]:
    """Mount a new ext4 file system of `mib` MiB through a loop device."""
    image, point = folder / "disk.img", folder / "disk"
    point.mkdir(parents=True)
    with image.open("wb") as fh:
        fh.truncate(mib << 20)
    _run([_tool("mkfs.ext4"), "-q", "-F", "-m", "0", os.fspath(image)])
    with _mounted(["-o", "loop", os.fspath(image), os.fspath(point)], point):
        yield point
    image.unlink()


@contextlib.contextmanager
def read_only(source: Path, point: Path) -> Iterator[Path]:
    """Mount the folder `source` once more, read-only."""
    point.mkdir(parents=True, exist_ok=True)
    with _mounted(["--bind", os.fspath(source), os.fspath(point)], point):
        _run(["mount", "-o", "remount,bind,ro", os.fspath(point)])
        yield point


@contextlib.contextmanager
def memory(options: str = "size=8m") -> Iterator[Path]:
    """Mount a file system that lives in memory."""
    point = Path(tempfile.mkdtemp(prefix="rig-memory-"))
    try:
        argv = ["-t", "tmpfs", "-o", options, "tmpfs", os.fspath(point)]
        with _mounted(argv, point):
            yield point
    finally:
        point.rmdir()


@contextlib.contextmanager
def _mounted(arguments: Sequence[str], point: Path) -> Iterator[None]:
    _run(["mount", *arguments])
    try:
        yield
    finally:
        gone = subprocess.run(["umount", os.fspath(point)], check=False)
        if gone.returncode:
            _run(["umount", "-l", os.fspath(point)])


def _tool(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    return shutil.which(name, path=path) or name


def _run(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)
