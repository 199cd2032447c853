# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which files of an environment and a checkout a scan looks for."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from tools.rig.guard.targets import Targets, is_library, maps_device, may_be_run


class TestTargets:
    """What is looked for."""

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        """Give a checkout with an environment beside it and others inside."""
        for name in (
            "env/bin/python",
            "env/lib/a.so",
            "env/lib/a.py",
            "fork/vllm/_C.so",
            "fork/vllm/_C.py",
            "fork/.git/x.so",
            "fork/.deps/y.so",
            "fork/.old/lib/z.so",
            "fork/.old/pyvenv.cfg",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x")
        (tmp_path / "fork/.venv").symlink_to("../env")
        (tmp_path / "fork/link.so").symlink_to("vllm/_C.so")
        return tmp_path

    def names(self, found: Targets) -> set[str]:
        """Return the names of all files that are looked for."""
        return {
            os.path.basename(os.fsdecode(fact.path))
            for facts in found.files.values()
            for fact in facts.values()
        }

    def test_walk(self, tree: Path) -> None:
        """Programs and libraries of the environment, libraries of the checkout."""
        found = Targets.of(tree / "fork/.venv", tree / "fork")
        assert self.names(found) == {"python", "a.so", "_C.so"}
        assert found.venv == tree / "env"
        assert os.fsencode(tree / "fork/.venv") in found.spellings
        assert found.others == (os.fsencode(tree / "fork/.old"),)
        assert found.bin is not None

    def test_environment_inside(self, tree: Path) -> None:
        """An environment inside the checkout is walked once and is no other one."""
        found = Targets.of(tree / "fork/.old", tree / "fork")
        assert self.names(found) == {"z.so", "_C.so"}
        assert found.others == ()
        assert found.shown(os.fsencode(tree / "fork/.old/lib/z.so")) == "lib/z.so"
        assert found.shown(b"/x/y.so") == "/x/y.so"

    def test_none(self, tmp_path: Path) -> None:
        """An environment that does not exist yet has no files and no users."""
        found = Targets.of(tmp_path / "none")
        assert not found.files
        assert found.bin is None
        assert found.checkout_place is None

    def test_empty_file(self, tmp_path: Path) -> None:
        """A file that cannot be mapped leaves the device to stat(2)."""
        (tmp_path / "e").mkdir()
        (tmp_path / "e/a.so").touch()
        (device,) = Targets.of(tmp_path / "e").files
        number = (tmp_path / "e").stat().st_dev
        assert device == b"%02x:%02x" % (os.major(number), os.minor(number))
        assert maps_device(tmp_path / "e/a.so") is None
        assert maps_device(tmp_path / "none") is None

    def test_device(self, tmp_path: Path) -> None:
        """The device is the one that maps prints while the file is mapped."""
        (tmp_path / "a.so").write_text("x")
        with (
            (tmp_path / "a.so").open("rb") as fh,
            mmap.mmap(fh.fileno(), 1, access=mmap.ACCESS_READ),
        ):
            table = Path("/proc/self/maps").read_bytes()
        (line,) = (row for row in table.splitlines() if b"/a.so" in row)
        assert maps_device(tmp_path / "a.so") == line.split()[3]

    def test_names(self) -> None:
        """Text is never run from; libraries carry their suffix anywhere."""
        assert may_be_run(b"ninja")
        assert not may_be_run(b"x.py")
        assert is_library(b"libc.so.6")
        assert is_library(b"_C.abi3.so")
        assert not is_library(b"x.soap")
