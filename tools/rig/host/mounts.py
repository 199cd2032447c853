# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Mounted file systems: which holds a path, what kind it is, why it does not answer.

The tables of ``/proc`` answer even when the disk that they describe does not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base import run


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NETWORK = _names(
    """
    nfs nfs4 cifs smb3 smbfs ceph lustre glusterfs gpfs beegfs afs 9p virtiofs drvfs
    panfs pvfs2 orangefs ocfs2 gfs2 wekafs vboxsf prl_fs vmhgfs acfs coda
    fuse.sshfs fuse.rclone fuse.s3fs fuse.juicefs fuse.ceph fuse.cephfs fuse.glusterfs
    fuse.davfs fuse.gcsfuse fuse.goofys fuse.mount-s3 fuse.beegfs fuse.moosefs fuse.mfs
    fuse.seaweedfs fuse.alluxio fuse.vmhgfs-fuse fuse.grpcfuse fuse.blobfuse
    fuse.blobfuse2 fuse.quobyte fuse.cvmfs2
    """
)
MEMORY = _names("tmpfs ramfs rootfs devtmpfs hugetlbfs")
LOCAL = _names(
    """
    ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs jfs reiserfs nilfs2 ntfs3 ntfs vfat exfat
    fuseblk
    """
)
OVERLAY = _names("overlay aufs fuse.fuse-overlayfs")

_STATFS_NAMES = {"ext2/ext3": "ext4", "overlayfs": "overlay", "smb2": "cifs"}


@dataclass(frozen=True)
class Mount:
    """One mounted file system, as ``/proc/self/mountinfo`` names it.

    ``device`` is ``major:minor`` as printed there; on btrfs and overlay it differs from
    what ``stat`` says. ``options`` joins the mount's and the file system's own.
    """

    point: Path
    fs: str
    source: str
    options: str
    device: str

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written there."""
        return "ro" in self.options.split(",")

    @property
    def no_exec(self) -> bool:
        """Whether programs there cannot be started."""
        return "noexec" in self.options.split(",")

    def __str__(self) -> str:
        return f"{self.point} ({self.fs or 'unknown file system'} from {self.source})"


def mount_of(
    path: Path, mountinfo: str | None = None, *, resolve: bool = True
) -> Mount:
    """Return the mount that holds `path`.

    Parameters
    ----------
    path
        It need not exist.
    mountinfo
        Text in the format of ``/proc/self/mountinfo``; read from there when None.
    resolve
        Follow links first, which touches the disk. Without it the answer comes from
        the table alone and never hangs.

    Returns
    -------
    Mount
        With an empty ``fs`` where the table has no answer, as in a chroot.
    """
    text = _read(Path("/proc/self/mountinfo")) if mountinfo is None else mountinfo
    where = os.path.realpath(path) if resolve else os.path.abspath(path)
    found = _walk(_parse(text), where)
    if found is None:
        fs = _ask_statfs(where) if mountinfo is None and resolve else ""
        return Mount(Path("/"), fs, "unknown", "", "0:0")
    return found


def kind(fs: str) -> str:
    """Return what a file system type means for an environment.

    Returns
    -------
    str
        ``local``, ``network``, ``memory``, ``fuse``, ``overlay`` or ``unknown``. The
        last three say little about speed: measure.
    """
    for names, name in (
        (NETWORK, "network"),
        (MEMORY, "memory"),
        (LOCAL, "local"),
        (OVERLAY, "overlay"),
    ):
        if fs in names:
            return name
    return "fuse" if fs == "fuse" or fs.startswith("fuse.") else "unknown"


def mount_statistics(point: Path, mountstats: str | None = None) -> tuple[str, ...]:
    """Return the lines about one NFS mount that tell why it does not answer.

    Parameters
    ----------
    point
        The mount point.
    mountstats
        Text in the format of ``/proc/self/mountstats``; read from there when None.

    Returns
    -------
    tuple of str
        The device line, age, events, transport and the operations that have waited;
        empty for what is no NFS mount.
    """
    text = _read(Path("/proc/self/mountstats")) if mountstats is None else mountstats
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("device "):
            words = line.split(" ")
            inside = (
                len(words) > 7
                and words[7].startswith("nfs")
                and _unescape(words[4]) == os.fspath(point)
            )
            if inside:
                kept = [line]
        elif inside and _telling(line.strip()):
            kept.append(line.strip())
    return tuple(kept)


def _telling(line: str) -> bool:
    """Whether a line is about the transport, or an operation that was sent again."""
    if line.startswith(("age:", "xprt:", "events:")):
        return True
    name, _, numbers = line.partition(": ")
    counts = numbers.split()
    return (
        name.isupper()
        and len(counts) >= 3
        and all(c.isdigit() for c in counts[:3])
        and (int(counts[1]) > int(counts[0]) or int(counts[2]) > 0)
    )


@dataclass(frozen=True)
class _Row:
    id: int
    parent: int
    mount: Mount


def _parse(text: str) -> list[_Row]:
    rows = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        a, b = left.split(" "), right.split(" ")
        if len(a) < 6 or len(b) < 3 or not (a[0] + a[1]).isdigit():
            continue
        rows.append(
            _Row(
                int(a[0]),
                int(a[1]),
                Mount(
                    point=Path(_unescape(a[4])),
                    fs=b[0],
                    source=_unescape(b[1]) or "none",
                    options=f"{a[5]},{b[2]}",
                    device=a[2],
                ),
            )
        )
    return rows


def _walk(rows: list[_Row], path: str) -> Mount | None:
    """Go down the tree of mounts as the kernel does when it looks up `path`.

    The longest matching prefix is not enough: a mount over a folder hides those that
    were made below that folder before.
    """
    ids = {row.id for row in rows}
    here = None
    for row in rows:
        if (row.parent not in ids or row.parent == row.id) and row.mount.point == Path(
            "/"
        ):
            here = row
    if here is None:
        inside = [r for r in rows if _holds(r.mount.point, path)]
        return (
            max(inside, key=lambda r: len(str(r.mount.point))).mount if inside else None
        )
    while True:
        below = [
            row
            for row in rows
            if row.parent == here.id
            and row.id != here.id
            and _holds(row.mount.point, path)
        ]
        if not below:
            return here.mount
        shortest = min(len(str(row.mount.point)) for row in below)
        here = [r for r in below if len(str(r.mount.point)) == shortest][-1]


def _holds(point: Path, path: str) -> bool:
    top = os.fspath(point)
    return top == "/" or path == top or path.startswith(top + "/")


def _unescape(text: str) -> str:
    r"""Undo the kernel's octal escapes: ``\040`` is a space."""
    for code, sign in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace("\\" + code, sign)
    return text


def _ask_statfs(path: str) -> str:
    """Name the file system through ``stat``, for a chroot whose table has no root."""
    where = path
    while not os.path.isdir(where):
        where = os.path.dirname(where)
    got = run.run(["stat", "-f", "-c", "%T", where], timeout=5)
    name = got.out.strip() if got.ok else ""
    return _STATFS_NAMES.get(name, "" if name.startswith("UNKNOWN") else name)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
