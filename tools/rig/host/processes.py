# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the kernel tells about processes, read raw from /proc and never changed.

Every function takes the place of /proc, so that a test can hand in a tree of its own.
A process that is gone is None or empty, not an error: it may leave at any moment.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

import regex as re

PROC = Path("/proc")

_PF_EXITING = 0x4
_PF_KTHREAD = 0x200000
_CHUNK = 1 << 16
_HIDING = frozenset(f"hidepid={word}" for word in ["2", "invisible", "4", "ptraceable"])
_FIRST_PIDS = "pid:[4026531836]"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Stat:
    """The fields of ``/proc/PID/stat`` that tell processes apart.

    ``start`` is in clock ticks since boot; ``flags`` are the kernel's PF_* bits.
    """

    state: str
    parent: int
    session: int
    flags: int
    start: int

    @property
    def running(self) -> bool:
        """Whether it is neither dead nor a zombie that waits to be collected."""
        return self.state not in "ZX"

    @property
    def has_memory(self) -> bool:
        """Whether it can map files: kernel threads, zombies and leavers cannot."""
        return self.running and not self.flags & (_PF_KTHREAD | _PF_EXITING)


@dataclass(frozen=True)
class MountEntry:
    """One line of ``mountinfo``.

    ``device`` is ``major:minor`` in decimal, as printed there; ``root`` is the folder
    inside the file system that is mounted at ``point``. Paths are raw bytes.
    """

    device: str
    root: bytes
    point: bytes
    fs: str
    options: str


def read(path: str) -> bytes:
    """Return a whole file of /proc, with as few calls as possible.

    Raises
    ------
    OSError
        As the kernel says: gone, not permitted.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(fd, _CHUNK):
            chunks.append(chunk)
    finally:
        os.close(fd)
    return b"".join(chunks)


def link(path: str) -> str | None:
    """Return where a link of /proc points, or None when that may not be known."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def boot_id(proc: Path = PROC) -> str:
    """Return the id that this machine drew when it booted, or "" when it has none."""
    return _text(f"{proc}/sys/kernel/random/boot_id")


def pids(proc: Path = PROC) -> list[int]:
    """Return the numbers of all processes that are visible here, in their order."""
    return sorted(int(name) for name in os.listdir(proc) if name.isdigit())


def stat(pid: int, proc: Path = PROC) -> Stat | None:
    """Return what ``/proc/PID/stat`` says, or None when the process is gone."""
    try:
        data = read(f"{proc}/{pid}/stat")
        # the name in brackets may hold spaces and brackets itself
        fields = data[data.rindex(b")") + 2 :].split()
        return Stat(
            state=fields[0].decode(),
            parent=int(fields[1]),
            session=int(fields[3]),
            flags=int(fields[6]),
            start=int(fields[19]),
        )
    except (OSError, ValueError, IndexError):
        return None


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Return when the process started, in clock ticks since boot; None when gone."""
    facts = stat(pid, proc)
    return None if facts is None else facts.start


def alive(pid: int, start_ticks: int | None, proc: Path = PROC) -> bool:
    """Say whether `pid` still is the process that started at `start_ticks`.

    Numbers are used again, so the number alone proves nothing; with None for the start
    any living process of that number will do. A zombie is not alive.
    """
    facts = stat(pid, proc)
    if facts is None or not facts.running:
        return False
    return start_ticks is None or facts.start == start_ticks


def cmdline(pid: int, proc: Path = PROC) -> list[str]:
    """Return the arguments; empty for kernel threads, zombies and those that left."""
    try:
        data = read(f"{proc}/{pid}/cmdline")
    except OSError:
        return []
    # a process that set its title leaves a tail of NULs behind it
    words = data.rstrip(b"\0").split(b"\0")
    return [os.fsdecode(word) for word in words] if words != [b""] else []


def name(pid: int, proc: Path = PROC) -> str:
    """Return the short name of the program, at most 15 letters, or ""."""
    return _text(f"{proc}/{pid}/comm")


def environ(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """Return the environment the process started with, or None when not readable."""
    try:
        data = read(f"{proc}/{pid}/environ")
    except OSError:
        return None
    pairs = (os.fsdecode(word).partition("=") for word in data.split(b"\0") if word)
    return {key: value for key, sep, value in pairs if sep}


def variable(pid: int, key: str, proc: Path = PROC) -> str:
    """Return one variable of the environment the process started with, or ""."""
    try:
        data = b"\0" + read(f"{proc}/{pid}/environ")
    except OSError:
        return ""
    _, _, after = data.partition(b"\0" + os.fsencode(key) + b"=")
    return os.fsdecode(after.partition(b"\0")[0])


def uid(pid: int, proc: Path = PROC) -> int | None:
    """Return the real user id, or None when the process is gone."""
    # the owner of the folder will not do: it is root for whatever is not dumpable
    for line in _text(f"{proc}/{pid}/status").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def user_name(number: int | None) -> str:
    """Return the login name of a user id, the number where it has none, or "?"."""
    if number is None:
        return "?"
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def ancestors(pid: int, proc: Path = PROC) -> set[int]:
    """Return `pid`, its parent, and so on up to the first process."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        facts = stat(pid, proc)
        pid = facts.parent if facts else 0
    return found


def mounts(pid: int | str = "self", proc: Path = PROC) -> list[MountEntry]:
    """Return the mounts that a process sees, in the order of mounting.

    Source: proc_pid_mountinfo(5). Empty when it may not be read.
    """
    try:
        data = read(f"{proc}/{pid}/mountinfo")
    except OSError:
        return []
    found = []
    for line in data.splitlines():
        head, _, tail = line.partition(b" - ")
        fields, kind = head.split(b" "), tail.split(b" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        found.append(
            MountEntry(
                device=fields[2].decode(),
                root=_unescaped(fields[3]),
                point=_unescaped(fields[4]),
                fs=kind[0].decode(errors="replace"),
                options=kind[2].decode(errors="replace"),
            )
        )
    return found


def blind_spots(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """Return why processes may exist that this /proc does not list at all.

    Parameters
    ----------
    pid
        A process of our own, whose namespaces are ours.

    Notes
    -----
    The mount option ``hidepid`` is described in proc(5); the number of the first pid
    namespace is fixed by the kernel (PROC_PID_INIT_INO).
    """
    found = []
    point = os.fsencode(proc)
    options = [m.options for m in mounts("self", proc) if m.point == point]
    words = set(options[-1].split(",")) if options else set()
    # whom the option does not concern, root for one, sees the first process
    if words & _HIDING and not os.path.exists(f"{proc}/1"):
        found.append("/proc hides the processes of other users")
    space = link(f"{proc}/{pid}/ns/pid")
    if space not in (None, _FIRST_PIDS):
        found.append("processes outside this container cannot be seen")
    return tuple(found)


def _text(path: str) -> str:
    try:
        return read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def _unescaped(field: bytes) -> bytes:
    plain: bytes = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), field)
    return plain
