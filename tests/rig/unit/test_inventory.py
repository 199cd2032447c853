# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What was brought is compared with what lies there now."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.support.fakecuda import program
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.builds import inventory
from tools.rig.builds.inventory import LIST, damage


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """Return a folder that was brought."""
    folder = tmp_path / "a kit's"
    program(folder / "bin" / "ptxas", "real")
    program(folder / "include" / "x.h", "text").chmod(0o644)
    program(folder / "lib64" / "libx.so.1", "lib")
    (folder / "lib64" / "libx.so").symlink_to("libx.so.1")
    (folder / "inc").symlink_to("include")
    inventory.seal(folder)
    (folder / SENTINEL).touch()
    return folder


def other_text(path: Path) -> None:
    """Write as many other bytes."""
    path.write_text("LAER")
    os.utime(path, ns=(1, 1))


def other_link(path: Path) -> None:
    """Let the link lead to nowhere."""
    path.unlink()
    path.symlink_to("gone")


def other_kind(path: Path) -> None:
    """Put a folder in the file's place."""
    path.unlink()
    path.mkdir()


def file_above(path: Path) -> None:
    """Put a file in the place of the folder that the file lies in."""
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("bin/ptxas", Path.unlink, "is missing"),
        ("bin/ptxas", file_above, "is missing"),
        ("bin/ptxas", lambda p: p.write_text("r"), "has 1 of 4 bytes"),
        ("bin/ptxas", lambda p: p.chmod(0o644), "is not executable"),
        ("bin/ptxas", other_text, "has another content"),
        ("bin/ptxas", other_kind, "is no file any more"),
        ("include/x.h", Path.unlink, "is missing"),
        ("lib64/libx.so", other_link, "leads elsewhere"),
        ("inc", Path.unlink, "is missing"),
    ],
)
def test_damage(
    kit: Path, name: str, change: Callable[[Path], None], said: str
) -> None:
    """Each kind of damage is noticed, and the file is named."""
    assert damage(kit) == damage(kit, deep=True) == ""
    change(kit / name)
    assert damage(kit) == f"{name} {said}"


def test_a_copy_that_lost_its_times(kit: Path) -> None:
    """Other times alone are no damage: the content decides."""
    os.utime(kit / "include" / "x.h", ns=(1, 1))
    assert damage(kit) == ""


def test_a_change_under_the_same_time(kit: Path) -> None:
    """Only the deep look reads files whose time is the same."""
    file = kit / "include" / "x.h"
    before = file.stat()
    file.write_text("TEXT")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert damage(kit) == ""
    assert damage(kit, deep=True) == "include/x.h has another content"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"bin/ptxas": 3}'])
def test_a_damaged_list(kit: Path, text: str) -> None:
    """A list that is no list is damage itself."""
    (kit / LIST).write_text(text)
    assert damage(kit) == f"{LIST} is cut short"


def test_a_list_that_cannot_be_read(kit: Path) -> None:
    """So is one that is something else."""
    other_kind(kit / LIST)
    assert damage(kit).startswith(f"{LIST} cannot be read")


def test_without_a_list(tmp_path: Path) -> None:
    """What an earlier version brought is looked at for what it needs."""
    (tmp_path / SENTINEL).touch()
    needed = ("bin/nvcc", "include/x.h")
    assert damage(tmp_path, needed) == "bin/nvcc is missing"
    file = program(tmp_path / "bin" / "nvcc")
    assert damage(tmp_path, needed) == "bin/nvcc is empty"
    file.write_text("x")
    file.chmod(0o644)
    assert damage(tmp_path, needed) == "bin/nvcc is not executable"
    file.chmod(0o755)
    assert damage(tmp_path, needed) == "include/x.h is missing"
    program(tmp_path / "include" / "x.h", "x").chmod(0o644)
    assert damage(tmp_path, needed) == ""


@pytest.mark.parametrize("mark", [SENTINEL, LIST, inventory.RECORD])
def test_any_mark_says_whose_it_is(tmp_path: Path, mark: str) -> None:
    """A folder that lost its other marks is still ours to replace."""
    assert not inventory.is_ours(tmp_path)
    (tmp_path / mark).touch()
    assert inventory.is_ours(tmp_path)


class TestRefuse:
    """What cannot be replaced, and what a failed compile says."""

    def test_not_ours(self, tmp_path: Path) -> None:
        """A folder of somebody else's is never damaged, and never taken away."""
        folder = tmp_path / "x"
        folder.mkdir()
        assert damage(folder, ("bin/nvcc",)) == ""
        inventory.refuse_damaged(folder)
        with pytest.raises(StepFailed, match="is in the way"):
            inventory.refuse(folder, "")
        inventory.set_aside(folder, tmp_path / "none")
        assert folder.is_dir()

    def test_a_compile_that_failed(self, kit: Path) -> None:
        """Whoever is whole is not blamed; the command to type is quoted."""
        inventory.refuse_damaged(kit)
        (kit / "include" / "x.h").unlink()
        with pytest.raises(CannotError, match=r"include/x\.h is missing") as caught:
            inventory.refuse_damaged(kit, ["said"])
        assert caught.value.details == ("said",)
        assert caught.value.hint == f"rm -r '{kit.parent}/a kit'\"'\"'s'"

    def test_a_compile_that_failed_without_a_list(self, kit: Path) -> None:
        """Without a list nothing clears what was brought."""
        (kit / LIST).unlink()
        with pytest.raises(CannotError, match="without a list"):
            inventory.refuse_damaged(kit)

    def test_may_not_be_moved(self, kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where we may not write, the command is told instead."""
        inventory.refuse(kit, "why")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(CannotError, match="is damaged: why"):
            inventory.refuse(kit, "why")
