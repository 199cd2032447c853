# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The meter against real processes that hold a known amount of memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.rig.base.run import stream
from tools.rig.builds.meter import Meter

pytestmark = pytest.mark.real

MIB = 1 << 20
HOLD = 96 * MIB
INTERPRETER = 40 * MIB
"""More than a Python without anything in it holds."""

COMPILER = f"""\
#!{sys.executable} -S
import subprocess, sys, time
if sys.argv[1] == "-o":
    subprocess.run([sys.argv[0], "hold"], check=True)
else:
    held = bytearray({HOLD})
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(1.0)
"""


def test_tree(tmp_path: Path) -> None:
    """All memory of a compile's tree is seen."""
    fake = tmp_path / "g++"
    fake.write_text(COMPILER)
    fake.chmod(0o755)
    meters: list[Meter] = []
    result = stream(
        [fake, "-o", "dir/x.cpp.o"],
        on_line=lambda line: None,
        log=tmp_path / "log",
        on_start=lambda session: meters.append(Meter(session, 0.05).start()),
    )
    peaks = meters[0].stop()
    assert result.ok, (tmp_path / "log").read_text()
    assert HOLD <= peaks.process <= HOLD + INTERPRETER
    assert HOLD <= peaks.total <= HOLD + 4 * INTERPRETER
    assert peaks.process_name == "g++"
