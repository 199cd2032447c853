# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds a folder that looks like /proc, for tests and benchmarks.

The formats are those of proc(5). A file that may not be read is a folder here: opening
works for root whatever its mode, but reading a folder fails for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SMAPS = """\
Size:                  8 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   8 kB
Pss:                   1 kB
Pss_Dirty:             0 kB
Shared_Clean:          8 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            8 kB
Anonymous:             0 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
THPeligible:           0
VmFlags: rd mr mw me
"""


@dataclass(frozen=True)
class Mapping_:
    """One mapping: what ``maps`` prints of it, without the address."""

    path: str
    inode: int
    device: str = "fe:00"
    perms: str = "r-xp"
    offset: int = 0


class FakeProc:
    """A tree of processes below `root`."""

    def __init__(self, root: Path, *, own: int = 4000) -> None:
        self.root = root
        self.own = own
        (root / "sys/kernel/random").mkdir(parents=True)
        (root / "sys/kernel/random/boot_id").write_text("boot-1\n")
        self.add(1, parent=0, cmdline=["/sbin/init"])
        self.add(own, cmdline=["python3", "-m", "invoke"])
        (root / "self").symlink_to(str(own))

    def add(
        self,
        pid: int,
        *,
        parent: int = 1,
        cmdline: Sequence[str] = ("/usr/bin/sleep", "9"),
        exe: str = "/usr/bin/sleep",
        cwd: str = "/",
        environ: Mapping[str, str] | None = None,
        uid: int = 0,
        maps: Sequence[Mapping_] = (),
        start: int = 100,
        state: str = "S",
        flags: int = 0x400000,
        namespace: str = "mnt:[1]",
        mountinfo: Sequence[str] = (),
        root: str = "/",
        readable: bool = True,
        smaps: bool = False,
    ) -> int:
        """Add one process; `readable` False hides what only its owner may see."""
        here = self.root / str(pid)
        (here / "ns").mkdir(parents=True)
        name = (cmdline[0].rsplit("/", 1)[-1] if cmdline else "kthread")[:15]
        after = [state, parent, pid, pid, 0, -1, flags, *[0] * 12, start, *[0] * 30]
        (here / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, after))}\n")
        (here / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t0\n")
        (here / "comm").write_text(f"{name}\n")
        (here / "cmdline").write_bytes(b"".join(a.encode() + b"\0" for a in cmdline))
        (here / "mountinfo").write_text("".join(f"{line}\n" for line in mountinfo))
        if not readable:
            for hidden in ("maps", "environ", "exe", "cwd", "root"):
                (here / hidden).mkdir()
            (here / "ns/mnt").mkdir()
            return pid
        words = [f"{key}={value}\0" for key, value in (environ or {}).items()]
        (here / "environ").write_text("".join(words))
        has_memory = bool(maps or cmdline)
        lines = maps_lines(maps if maps or not has_memory else _SELF)
        (here / "maps").write_text("".join(lines))
        if smaps:
            (here / "smaps").write_text("".join(line + _SMAPS for line in lines))
        if has_memory:
            (here / "exe").symlink_to(exe)
        (here / "cwd").symlink_to(cwd)
        (here / "root").symlink_to(root)
        (here / "ns/mnt").symlink_to(namespace)
        return pid


_SELF = (Mapping_("/usr/bin/sleep", 11), Mapping_("/usr/lib/libc.so.6", 12))


def maps_lines(maps: Sequence[Mapping_], base: int = 0x7F0000000000) -> list[str]:
    """Return the lines of ``maps``, addresses rising, paths from column 73 on."""
    lines = []
    for index, one in enumerate(maps):
        low = base + index * 0x3000
        head = (
            f"{low:x}-{low + 0x2000:x} {one.perms} {one.offset:08x} "
            f"{one.device} {one.inode} "
        )
        lines.append(f"{head:<73}{one.path}\n")
    return lines


def mount_line(
    device: str, root: str, point: str, fs: str = "ext4", options: str = "rw"
) -> str:
    """Return one line of ``mountinfo``."""
    return f"30 1 {device} {root} {point} rw,relatime shared:1 - {fs} none {options}"
