# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What makes a place for an environment one that will not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rig.support.candidates import (
    FAST,
    ME,
    NAS,
    SLOW,
    STRANGER,
    candidate,
    disk,
    mount,
)
from tools.rig.builds.candidates import GIB, judge, slow, speed


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"hung": True, "problem": "no answer", "mount": NAS}, "no answer"),
        ({"mount": NAS}, "nfs4 from srv:/export is a network file system"),
        ({"mount": mount(fs="tmpfs")}, "tmpfs lies in memory"),
        ({"mount": mount(options="ro")}, "/home is mounted read-only"),
        ({"mount": mount(options="rw,noexec")}, "/home is mounted noexec"),
        ({"problem": "Permission denied"}, "it cannot be used: Permission denied"),
        ({"writable": False}, "you may not write there"),
        ({"exists": True, "owner": STRANGER}, "it belongs to user 4711"),
        ({"exists": True, "owner": STRANGER, "chosen": True}, ""),
        ({"exists": True, "owner": ME}, ""),
        ({"links": False}, "ext4 has no symbolic links"),
        ({"rates": SLOW, "mount": mount(fs="fuse")}, "too slow: fuse"),
        ({"rates": None}, ""),
        ({"free_bytes": 11 * GIB}, "no space: 11.0 GiB free, 12.0 GiB needed"),
        ({"free_bytes": 11 * GIB, "venv": "ready"}, ""),
        ({"free_bytes": GIB, "venv": "ready"}, "no space: 1.0 GiB free"),
        ({"free_inodes": 1000}, "no inodes: 1000 more files possible"),
        ({"free_inodes": 1000, "venv": "ready"}, ""),
        ({"mount": mount(fs="overlay")}, ""),
        ({"mount": mount(fs="")}, ""),
    ],
)
def test_judge(more: dict[str, Any], reason: str) -> None:
    """Each way in which a place will not do has its own words."""
    got = judge(candidate(**more), ME, 12 * GIB)
    assert got.startswith(reason) and bool(got) == bool(reason)


def test_small_needs() -> None:
    """A small target asks for what it needs, also where its environment is."""
    tiny = candidate(free_bytes=GIB, free_inodes=10, venv="ready")
    assert judge(tiny, ME, GIB // 2) == ""
    assert judge(candidate(free_bytes=0, free_inodes=0), ME, 0) == ""


def test_speed() -> None:
    """Numbers as people say them; a slow disk tells what that means."""
    assert speed(disk(rates=None)) == "ext4, not measured"
    assert speed(disk()).startswith("ext4, 0.05 ms for a new file; a second: 9 000 cr")
    told = speed(disk(rates=SLOW))
    assert "4.6 created" in told and told.endswith("60000 files take about 338 min")
    assert slow(disk(rates=replace(FAST, latency_ms=6)))
    assert not slow(disk(rates=None))
