# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Disks that take no further file, and what can still be told there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import disks
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, write_json
from tools.rig.builds import uv_failure
from tools.rig.builds.record import Record, listing

pytestmark = pytest.mark.real


@pytest.fixture
def crowded() -> Iterator[Path]:
    """Return a folder on a disk whose last inode is taken."""
    if why := disks.refused(disks.memory()):
        pytest.skip(f"no disk of our own: {why}")
    with disks.memory("size=16m,nr_inodes=40") as point:
        (point / "root").mkdir()
        with contextlib.suppress(OSError):
            for number in range(100):
                (point / str(number)).touch()
        yield point / "root"


def test_it_is_told(crowded: Path) -> None:
    """Each way to write names inodes, and the command that counts them."""
    with pytest.raises(StepFailed, match="no inodes are left") as caught:
        write_json(crowded / "record.json", {})
    assert caught.value.hint == f"df -i {crowded}"
    with pytest.raises(StepFailed, match="no inodes are left"):
        StateRoot(crowded).make(crowded / "records")
    full = f"error: {os.strerror(errno.ENOSPC)} (os error 28)"
    error = uv_failure.failure("uv cannot install", [full], crowded / "venv")
    assert "no inodes are left" in error.what and error.hint == f"df -i {crowded}"


def test_end_of_a_build(tmp_path: Path) -> None:
    """A build that a full disk has stopped is recorded as failed on that disk."""
    if why := disks.refused(disks.ext4(tmp_path / "try", 4)):
        pytest.skip(f"no disk of our own: {why}")
    with disks.ext4(tmp_path, 4) as point:
        made = Record(StateRoot(point / "root"), "invoke build-sm70")
        made.update(plan={"commands": ["x" * 50] * 100})
        with (point / "filler").open("wb") as fh, pytest.raises(OSError):
            while True:
                fh.write(b"x" * 4096)
                fh.flush()
        with pytest.raises(StepFailed, match="cannot write"):
            made.step("build the wheel", 1.0, "failed")
        made.end("failed", 1, error="No space left on device", objects=[{}] * 9000)
        [found] = listing(StateRoot(point / "root"))
        assert found["result"] == "failed"
        assert found["error"] == "No space left on device" and found["plan"]
