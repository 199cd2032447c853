# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Temporary folders of processes that are really killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.rig.base import scratch

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
CHILD = (
    "import sys\nfrom tools.rig.base import scratch\n"
    "with scratch.folder('wheel', sys.argv[1]) as made:\n"
    "    print(made, flush=True)\n    sys.stdin.read()\n"
)


def test_killed(tmp_path: Path) -> None:
    """A folder stays while its process lives, and goes with the next after SIGKILL."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        made = Path(child.stdout.readline().strip())
        os.utime(made, (1e9, 1e9))
        with scratch.folder("wheel", tmp_path):
            assert made.is_dir()
        child.kill()
    with scratch.folder("wheel", tmp_path):
        assert not made.exists()
    assert not any(tmp_path.iterdir())
