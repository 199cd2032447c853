# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which mount holds a path, what kind it is, and why it does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.host import mounts

TABLE = "\n".join(
    [
        "22 27 0:21 / /proc rw,relatime - proc proc rw",
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard",
        r"40 27 0:50 / /nas\040one rw - nfs4 srv:/home\040dir rw,vers=4.2",
        "41 27 0:51 / /data rw,noexec - xfs /dev/sdb ro",
        "42 41 0:52 / /data/fast rw - btrfs /dev/sdc rw",
        "43 27 0:53 / /data rw - tmpfs tmpfs rw",
        "44 43 0:54 / /data rw - ext4 /dev/sdd rw",
        "broken line",
        "x y 0:1 / /z rw - ext4 a b",
    ]
)


@pytest.mark.parametrize(
    ("path", "fs"),
    [
        ("/home/user", "ext4"),
        ("/nas one", "nfs4"),
        ("/nas one/a/b", "nfs4"),
        ("/nas ones", "ext4"),
        ("/proc/self", "proc"),
    ],
)
def test_the_mount_that_holds_a_path(path: str, fs: str) -> None:
    """The deepest mount counts, whole names only, and spaces are unescaped."""
    assert mounts.mount_of(Path(path), TABLE, resolve=False).fs == fs


def test_a_later_mount_hides_what_was_below() -> None:
    """A mount over a folder hides the mounts that were made in it before."""
    got = mounts.mount_of(Path("/data/fast/x"), TABLE, resolve=False)
    assert got.source == "/dev/sdd"


def test_all_fields() -> None:
    """Source, options of both kinds and device come as the kernel prints them."""
    got = mounts.mount_of(Path("/nas one/x"), TABLE, resolve=False)
    assert got == mounts.Mount(
        Path("/nas one"), "nfs4", "srv:/home dir", "rw,rw,vers=4.2", "0:50"
    )
    assert str(got) == "/nas one (nfs4 from srv:/home dir)"
    assert not got.read_only and not got.no_exec


def test_options_that_matter() -> None:
    """Read-only counts from either side."""
    table = "1 0 8:1 / / rw,noexec - xfs /dev/sdb ro"
    got = mounts.mount_of(Path("/x"), table, resolve=False)
    assert got.read_only and got.no_exec


def test_a_table_without_a_root() -> None:
    """In a chroot the longest mount that fits is the answer, or none is."""
    table = "5 99 0:5 / /proc rw - proc proc rw\n6 99 0:6 / /proc/x rw - tmpfs t rw"
    assert mounts.mount_of(Path("/proc/x/y"), table, resolve=False).fs == "tmpfs"
    got = mounts.mount_of(Path("/home"), table, resolve=False)
    assert got.fs == "" and str(got) == "/ (unknown file system from unknown)"


@pytest.mark.parametrize(
    ("answer", "fs"),
    [("ext2/ext3", "ext4"), ("nfs", "nfs"), ("UNKNOWN (0x1)", ""), (None, "")],
)
def test_a_chroot_is_asked_through_stat(
    fp: FakeProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answer: str | None,
    fs: str,
) -> None:
    """Where the real table has no root, ``stat -f`` names the file system."""
    monkeypatch.setattr(mounts, "_read", lambda file: "")
    fp.register(
        ["stat", "-f", "-c", "%T", os.path.realpath(tmp_path)],
        stdout=answer or "",
        returncode=0 if answer else 1,
    )
    assert mounts.mount_of(tmp_path / "not" / "there").fs == fs


def test_our_own_table() -> None:
    """The kernel's table says something about the root."""
    assert mounts.mount_of(Path("/proc")).fs == "proc"


@pytest.mark.parametrize(
    ("fs", "kind"),
    [
        ("nfs4", "network"),
        ("fuse.sshfs", "network"),
        ("9p", "network"),
        ("tmpfs", "memory"),
        ("xfs", "local"),
        ("fuseblk", "local"),
        ("overlay", "overlay"),
        ("fuse.fuse-overlayfs", "overlay"),
        ("fuse.mergerfs", "fuse"),
        ("fuse", "fuse"),
        ("newfs", "unknown"),
        ("", "unknown"),
    ],
)
def test_kinds(fs: str, kind: str) -> None:
    """Names stand for kinds; what nobody knows is unknown."""
    assert mounts.kind(fs) == kind


STATS = "\n".join(
    [
        "device proc mounted on /proc with fstype proc",
        r"device srv:/x mounted on /nas\040one with fstype nfs4 statvers=1.1",
        " opts: rw,vers=4.2,hard",
        " age: 812",
        " events: 1 2 3",
        " xprt: tcp 0 1 2 0 800 20 20",
        " per-op statistics",
        "        READ: 10 10 0 5 5 5 5 5 0",
        "     GETATTR: 10 25 0 5 5 5 5 5 0",
        "       WRITE: 3 3 2 5 5 5 5 5 0",
        "        ODD: a b",
        "device other:/y mounted on /y with fstype nfs",
        " age: 1",
    ]
)


def test_statistics_of_a_dead_mount() -> None:
    """Transport and the calls that were sent again are kept, other mounts are not."""
    got = mounts.mount_statistics(Path("/nas one"), STATS)
    assert got[0].startswith("device srv:/x")
    assert [line.split(":")[0] for line in got[1:]] == [
        "age",
        "events",
        "xprt",
        "GETATTR",
        "WRITE",
    ]


def test_no_statistics() -> None:
    """What is no NFS mount has none; the kernel's own file can be read."""
    assert mounts.mount_statistics(Path("/proc"), STATS) == ()
    assert mounts.mount_statistics(Path("/proc")) == ()


def test_an_unreadable_table(tmp_path: Path) -> None:
    """A table that cannot be read is an empty one."""
    assert mounts._read(tmp_path / "none") == ""
