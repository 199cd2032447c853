# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the real tests of servers call left in shared memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import vllm_cpu
from tools.rig.base import shared_memory
from tools.rig.base.state import StateRoot
from tools.rig.serve import record as records

pytestmark = pytest.mark.allow_process

_MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as fh:
    held = mmap.mmap(fh.fileno(), 0)
print(flush=True)
sys.stdin.read()
"""


class Holder:
    """A process in a session of its own that maps a file, recorded as a server."""

    def __init__(self, root: Path, name: str, file: str) -> None:
        self.file = file
        self.proc = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _MAPS, self.file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.proc.stdout is not None
        self.proc.stdout.readline()
        plan = vllm_cpu.plan(root, root / "m", name, python=Path(sys.executable))
        self.record = records.of_plan(plan, "token", 1.0)
        self.record.session = self.proc.pid
        records.save(StateRoot(root), self.record)

    def end(self) -> None:
        """Let it end; its file stays."""
        if self.proc.poll() is None:
            self.proc.communicate(timeout=20)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Holder, Holder]]:
    """Give two servers below one root."""
    with contextlib.ExitStack() as stack:
        made = []
        for name in ("lives", "ends"):
            fd, file = tempfile.mkstemp(prefix="rig-test-", dir=shared_memory.SHM)
            stack.callback(Path(file).unlink, missing_ok=True)
            os.write(fd, b"x" * 4096)
            os.close(fd)
            made.append(Holder(tmp_path, name, file))
            stack.callback(made[-1].end)
        yield made[0], made[1]


def wait_for(seen: dict[str, int], file: str) -> None:
    """Wait until a file was seen."""
    deadline = time.monotonic() + 20
    while file not in seen:
        assert time.monotonic() < deadline, f"{file} was never seen"
        time.sleep(0.05)


def test_a_neighbour_keeps_its_files(
    tmp_path: Path, pair: tuple[Holder, Holder]
) -> None:
    """Asked about one server, what another below the same root maps does not count."""
    lives, ends = pair
    with vllm_cpu.nothing_left_in_shm(tmp_path, "ends", within=0.3) as seen:
        wait_for(seen, ends.file)
        ends.end()
        removed = shared_memory.remove(dict(seen))
    assert removed == [ends.file]
    assert set(seen) == {ends.file}
    assert os.path.exists(lives.file)


@pytest.mark.parametrize("name", ["ends", ""])
def test_what_is_left_is_told(
    tmp_path: Path, pair: tuple[Holder, Holder], name: str
) -> None:
    """A file that its server leaves fails the test, whether one is meant or all are."""
    _, ends = pair
    with (
        pytest.raises(AssertionError, match=os.path.basename(ends.file)),
        vllm_cpu.nothing_left_in_shm(tmp_path, name, within=0.3) as seen,
    ):
        wait_for(seen, ends.file)
        ends.end()
