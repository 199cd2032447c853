# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan where files are reached through mounts, and from other mount namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.support.guarded import MAP, Start, found, mapping
from tests.rig.support.guarded import base as base
from tests.rig.support.guarded import start as start
from tests.rig.support.guarded import venv as venv
from tests.rig.support.nobody import needs_root

pytestmark = pytest.mark.real

BIND_AND_MAP = """
import os, subprocess, sys
subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[2]], check=True)
os.execv(sys.executable, [sys.executable, "-I", "-c", sys.argv[4], sys.argv[3]])
"""


def needs_mounts() -> None:
    """Skip where a private mount cannot be made."""
    probe = ["unshare", "-m", "true"]
    if not shutil.which("unshare") or subprocess.run(probe, check=False).returncode:
        pytest.skip("this user may not make mount namespaces")


class TestMounts:
    """Mounts give a file other paths, and other processes other mounts."""

    def test_bind_mount(self, base: Path, venv: Path, start: Start) -> None:
        """A bind mount in our own namespace does not hide it, not even when deleted."""
        needs_root()
        alias = base / "alias"
        alias.mkdir()
        done = subprocess.run(["mount", "--bind", venv / "lib", alias], check=False)
        if done.returncode:
            pytest.skip("this user may not mount")
        try:
            os.link(venv / "lib/one.so", venv / "lib/linked.so")
            single = start(mapping(alias / "one.so"))
            assert found(venv, single) is not None
            (venv / "lib/one.so").unlink()
            (venv / "lib/linked.so").unlink()
            assert found(venv, single) is not None
        finally:
            subprocess.run(["umount", "-l", alias], check=True)

    @pytest.mark.parametrize("fate", ["kept", "linked", "deleted"])
    def test_another_namespace(
        self, base: Path, venv: Path, start: Start, fate: str
    ) -> None:
        """A container that has the environment at another path is seen."""
        needs_mounts()
        alias = base / "inside"
        alias.mkdir()
        pid = start(
            ["unshare", "-m", "--propagation", "private", sys.executable, "-I", "-c"]
            + [BIND_AND_MAP, venv, alias, alias / "lib/one.so", MAP]
        )
        assert not (alias / "lib").exists()
        if fate == "linked":
            os.link(venv / "lib/one.so", base / "cached.so")
        if fate == "deleted":
            (venv / "lib/one.so").unlink()
        assert found(venv, pid) is not None

    def test_same_path_elsewhere(self, base: Path, venv: Path, start: Start) -> None:
        """A container with another environment at the same path is none of ours."""
        needs_mounts()
        other = base / "other"
        (other / "lib").mkdir(parents=True)
        (other / "lib/one.so").write_bytes(b"z" * 5000)
        pid = start(
            ["unshare", "-m", "--propagation", "private", sys.executable, "-I", "-c"]
            + [BIND_AND_MAP, other, venv, venv / "lib/one.so", MAP]
        )
        assert found(venv, pid) is None
        assert found(other, pid) is not None

    def test_other_file_system(self, base: Path, venv: Path, start: Start) -> None:
        """An environment on a file system of its own is known by that device."""
        needs_root()
        disk = base / "disk"
        disk.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False
        )
        if made.returncode:
            pytest.skip("this user may not mount")
        try:
            (disk / "one.so").write_bytes(b"x" * 5000)
            pid = start(mapping(disk / "one.so"))
            assert found(disk, pid) is not None
            assert found(venv, pid) is None
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def test_overlay(self, base: Path, start: Start) -> None:
        """On an overlay the device is the one of maps, whatever stat says."""
        needs_root()
        for name in ("lower", "upper", "work", "merged"):
            (base / "o" / name).mkdir(parents=True)
        (base / "o/lower/one.so").write_bytes(b"x" * 5000)
        top = base.rename(base.with_name("rig-guard-overlay"))
        try:
            o = top / "o"
            options = f"lowerdir={o}/lower,upperdir={o}/upper,workdir={o}/work"
            made = subprocess.run(
                ["mount", "-t", "overlay", "none", o / "merged", "-o", options],
                check=False,
                capture_output=True,
            )
            if made.returncode:
                pytest.skip("no overlay mounts here")
            try:
                pid = start(mapping(o / "merged/one.so"))
                assert found(o / "merged", pid) is not None
            finally:
                subprocess.run(["umount", "-l", o / "merged"], check=True)
        finally:
            top.rename(base)
