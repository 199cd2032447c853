# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Free space, owners and metadata rates."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.rig.host import storage


def clock(step: float) -> Callable[[], float]:
    """Return a clock that goes on by `step` seconds at each look."""
    now = [0.0]

    def look() -> float:
        now[0] += step
        return now[0]

    return look


def test_measures_and_cleans_up(tmp_path: Path) -> None:
    """Rates come out above zero and nothing is left in the folder."""
    got = storage.measure(tmp_path, 0.05)
    assert min(got.create, got.stat, got.rename, got.unlink) == got.slowest > 0
    assert got.latency_ms > 0
    assert list(tmp_path.iterdir()) == []


def test_arithmetic(tmp_path: Path) -> None:
    """A disk with 60 ms for each operation does 17 a second; two looks are one stat."""
    got = storage.measure(tmp_path, 1.0, clock=clock(0.06))
    assert round(got.create) == round(got.rename) == round(got.unlink) == 17
    assert round(got.stat) == 33
    assert round(got.latency_ms) == 60
    # one round is five looks at the clock and one for the budget
    assert 1.0 <= got.seconds < 1.5


def test_one_round_is_always_made(tmp_path: Path) -> None:
    """A disk slower than the whole budget is measured all the same."""
    got = storage.measure(tmp_path, 0.1, clock=clock(5))
    assert got.create == pytest.approx(0.2)


def test_a_fast_disk_ends_early(tmp_path: Path) -> None:
    """After enough rounds a fast disk is known."""
    got = storage.measure(tmp_path, 60, most=3)
    assert got.seconds < 60


def test_cleans_up_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk raises and leaves no folder behind."""

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        storage.measure(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are those of ordinary users; no inode table means no limit."""
    rows = {"f_bavail": 10, "f_frsize": 4096, "f_favail": 7, "f_files": 9}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**rows))
    assert storage.free(tmp_path) == (40960, 7)
    rows["f_files"] = 0
    assert storage.free(tmp_path) == (40960, storage.UNLIMITED)


def test_owner(tmp_path: Path) -> None:
    """The owner of the target counts."""
    (tmp_path / "link").symlink_to(tmp_path)
    assert storage.owner(tmp_path / "link") == os.getuid()


def test_nearest_existing(tmp_path: Path) -> None:
    """The closest folder above a place that is not there."""
    (tmp_path / "file").touch()
    assert storage.nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert storage.nearest_existing(tmp_path / "file") == tmp_path
    assert storage.nearest_existing(Path("relative-and-absent")) == Path(".")
