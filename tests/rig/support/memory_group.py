# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A memory cgroup of a test's own, where this machine lets us make one."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
_ENTER = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()));"
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup with a limit; ``version`` is that of its file names."""

    folder: Path
    version: int

    def inside(self, *argv: str | os.PathLike[str]) -> list[str]:
        """Return a command that runs another one inside the group."""
        procs = os.fspath(self.folder / "cgroup.procs")
        words = [os.fspath(word) for word in argv]
        return [sys.executable, "-IS", "-c", _ENTER, procs, *words]

    def kills(self) -> int:
        """Return how often the kernel ended a process of the group."""
        name = {1: "memory.oom_control", 2: "memory.events"}[self.version]
        words = (self.folder / name).read_text().split()
        return int(words[words.index("oom_kill") + 1])


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup | None]:
    """Make a group for so many bytes; yield None where that is not allowed."""
    made = _made(limit)
    try:
        yield made
    finally:
        if made is not None:
            _remove(made.folder)


def _made(limit: int) -> MemoryGroup | None:
    name = f"rig-test-{secrets.token_hex(4)}"
    for top, version, file in (
        (_TOP / "memory", 1, "memory.limit_in_bytes"),
        (_TOP, 2, "memory.max"),
    ):
        folder = top / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / file).write_text(str(limit))
        except OSError:
            folder.rmdir()
            continue
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with contextlib.suppress(OSError):
                value = limit if swap.endswith("bytes") else 0
                (folder / swap).write_text(str(value))
        return MemoryGroup(folder, version)
    return None


def _remove(folder: Path) -> None:
    for _ in range(100):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), 9)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)
