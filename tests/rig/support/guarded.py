# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An environment with one library, and real processes that use it or do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.rig.guard.scan import User, scan
from tools.rig.guard.targets import Targets

MAP = """
import mmap, sys, time
with open(sys.argv[1], "rb") as fh:
    held = mmap.mmap(fh.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
time.sleep(120)
"""
WAIT = "import time; print('ready', flush=True); time.sleep(120)"

Start = Callable[..., int]


@pytest.fixture
def base() -> Iterator[Path]:
    """Give a folder that other users may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="rig guard ü'"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def venv(base: Path) -> Path:
    """Give an environment with one library."""
    folder = base / "venvs/one"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib/one.so").write_bytes(b"x" * 5000)
    return folder


@pytest.fixture
def start() -> Iterator[Start]:
    """Give a function that starts a program and returns its pid when it is ready."""
    running: list[subprocess.Popen[str]] = []

    def go(argv: Sequence[str | Path], **options: Any) -> int:
        proc = subprocess.Popen(
            [os.fspath(a) for a in argv],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            **options,
        )
        running.append(proc)
        assert proc.stdout.readline() == "ready\n"
        pid: int = proc.pid
        return pid

    yield go
    for proc in running:
        proc.kill()
        proc.wait()
        for pipe in (proc.stdin, proc.stdout):
            if pipe:
                pipe.close()


def mapping(path: Path) -> list[str | Path]:
    """Return a program that maps `path` and waits; isolated from our environment."""
    return [sys.executable, "-I", "-c", MAP, path]


def found(venv: Path, pid: int, checkout: Path | None = None) -> User | None:
    """Return what the scan says about one process."""
    result = scan(Targets.of(venv, checkout))
    return next((user for user in result.users if user.pid == pid), None)
