# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build lets everybody else go first, also where the kernel groups by session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.rig.base.stream import stream

pytestmark = pytest.mark.real

_SHOW = """
import os
print("nice", os.nice(0))
print("oom", open("/proc/self/oom_score_adj").read().strip())
try:
    print("group", open("/proc/self/autogroup").read().split()[-1])
except OSError:
    print("group none")
"""


def test_a_build_is_lowered_in_every_way(tmp_path: Path) -> None:
    """Niceness, the session's scheduling group and the OOM score all say: last."""
    said: list[str] = []
    argv = [sys.executable, "-c", _SHOW]
    stream(argv, on_line=said.append, log=tmp_path / "log", nice=7, first_to_die=True)
    told = dict(line.split() for line in said)
    assert told["nice"] == "7"
    assert int(told["oom"]) > 0
    assert told["group"] in ("7", "none")
