# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A disk on which bytes are free, and no further file can be made."""

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
