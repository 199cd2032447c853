# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who uses an environment, or the checkout's own libraries, at this moment.

Mapped files are compared by device and inode, so that links, renames, bind mounts and
other mount namespaces do not hide them, and by path, so that deleted ones count. Who
may not be looked into is judged by what everybody may see and else counted as unknown,
never as free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from tools.rig.guard import signs
from tools.rig.guard.places import below, names_of
from tools.rig.guard.signs import Names
from tools.rig.guard.targets import FileFact, Targets, is_library, may_be_run
from tools.rig.host import processes

_DELETED = b" (deleted)"
_KEY = 8
"""Bytes of an inode number that are compared at first, padded with blanks."""


@dataclass(frozen=True)
class User:
    """A process that uses what a build would overwrite.

    ``command`` is masked and on one line. ``maps`` holds the files it has mapped,
    ``why`` every other sign: its program, its working folder, its interpreter.
    """

    pid: int
    start: int | None
    user: str
    command: str
    maps: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScanResult:
    """What a scan found.

    ``users`` certainly use the environment; ``suspects`` may not be looked into and
    give a sign that they do; ``unknown`` counts those that may not be looked into and
    give none. ``blind`` says why there may be others that /proc does not even list.
    """

    users: tuple[User, ...] = ()
    suspects: tuple[User, ...] = ()
    unknown: int = 0
    blind: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def free(self) -> bool:
        """Whether nothing was found that speaks against a build."""
        return not self.users and not self.suspects


def scan(
    targets: Targets,
    *,
    proc: Path = processes.PROC,
    gpu_pids: Callable[[], set[int]] | None = None,
    self_pid: int | None = None,
) -> ScanResult:
    """Look at every process of this machine.

    Parameters
    ----------
    targets
        What is looked for.
    proc
        The place of /proc.
    gpu_pids
        Asked only when a process may not be looked into: which pids hold a GPU.
    self_pid
        Left out together with its ancestors; this process when None.
    """
    begin = time.monotonic()
    own = os.getpid() if self_pid is None else self_pid
    look = _Look(targets, proc, own)
    skipped = processes.ancestors(own, proc)
    users: list[User] = []
    closed: list[int] = []
    visible = processes.pids(proc)
    for pid in visible:
        if pid in skipped:
            continue
        try:
            found = look.at(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            closed.append(pid)
            continue
        if found is not None:
            users.append(found)
    suspects, unknown = _judged(look, closed, set(visible), gpu_pids)
    return ScanResult(
        users=tuple(users),
        suspects=tuple(suspects),
        unknown=unknown,
        blind=processes.blind_spots(own, proc),
        seconds=time.monotonic() - begin,
    )


class _Look:
    """One scan: what is the same for all processes is prepared once."""

    def __init__(self, targets: Targets, proc: Path, own: int) -> None:
        self.targets = targets
        self.proc = proc
        self.own = own
        self.root = os.fspath(proc)
        self.programs = targets.programs
        self.names = self._names(own, here=True)
        self.spaces = {processes.link(f"{proc}/{own}/ns/mnt"): self.names}
        self.first = itemgetter(slice(_KEY))
        # a superset of the inodes, cheap to compare: a hit is looked at in full
        self.keys = tuple(
            (b" %s " % device, frozenset(i.ljust(_KEY)[:_KEY] for i in inodes))
            for device, inodes in targets.files.items()
        )

    def at(self, pid: int) -> User | None:
        """Return what one process uses, or None.

        Raises
        ------
        OSError
            When it may not be looked into or is gone.
        """
        here = f"{self.root}/{pid}"
        table = processes.read(here + "/maps")
        try:
            exe = os.readlink(here + "/exe")
        except FileNotFoundError:
            # no program: a kernel thread, or one that is leaving
            return None
        cwd = os.readlink(here + "/cwd")
        space = os.readlink(here + "/ns/mnt")
        known = self.spaces.get(space)
        names = known if known else self._enter(space, pid)
        maps: tuple[str, ...] = ()
        if self._touched(table, names.inside):
            maps = self._mapped(pid, table, names)
        why = []
        if not maps and os.fsencode(exe).startswith(names.inside_venv):
            why.append(f"runs {exe}")
        if os.fsencode(cwd + "/").startswith(names.inside_venv):
            why.append(f"works in {cwd}")
        if signs.is_python(exe) and (
            sign := signs.interpreter(
                pid, names, self.programs, lambda: self.led(pid), self.proc
            )
        ):
            why.append(sign)
        return self.user(pid, maps, why) if maps or why else None

    def led(self, pid: int) -> bool:
        """Say whether the link in force led here when a process was started."""
        return self.targets.led(processes.start_time(pid, self.proc))

    def user(self, pid: int, maps: Sequence[str], why: Sequence[str]) -> User:
        """Return a process with everything that a reader needs to find its owner."""
        return User(
            pid=pid,
            start=processes.start_time(pid, self.proc),
            user=processes.user_name(processes.uid(pid, self.proc)),
            command=signs.command(pid, self.proc),
            maps=tuple(maps),
            why=tuple(why),
        )

    def _enter(self, space: str, pid: int) -> Names:
        self.spaces[space] = names = self._names(pid, here=False)
        return names

    def _names(self, pid: int, *, here: bool) -> Names:
        mounts = processes.mounts(pid, self.proc)
        found = []
        for folder, place in (
            (self.targets.venv, self.targets.venv_place),
            (self.targets.checkout, self.targets.checkout_place),
        ):
            names = list(names_of(place, mounts)) if place else []
            if here and folder is not None:
                names.append(os.fsencode(folder))
            found.append(tuple(dict.fromkeys(names)))
        typed = self.targets.spellings if here else ()
        return Names(found[0], found[1], typed)

    def _touched(self, table: bytes, inside: tuple[bytes, ...]) -> bool:
        """Say quickly whether a table of maps may hold anything of ours."""
        for name in inside:
            if name in table:
                return True
        for device, keys in self.keys:
            pieces = table.split(device)
            if len(pieces) > 1 and not keys.isdisjoint(map(self.first, pieces)):
                return True
        return False

    def _mapped(self, pid: int, table: bytes, names: Names) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for line in table.splitlines():
            fields = line.split(None, 5)
            if len(fields) < 6:
                continue
            _, _, _, device, inode, path = fields
            fact = self.targets.files.get(device, {}).get(inode)
            if fact is not None and self._is(pid, fact, device, path, names):
                found[self.targets.shown(fact.path)] = None
            elif self._is_inside(path, names):
                found[os.fsdecode(path)] = None
        return tuple(found)

    def _is(
        self, pid: int, fact: FileFact, device: bytes, path: bytes, names: Names
    ) -> bool:
        """Say whether a mapping with the inode of one of our files is that file."""
        if fact.links == 1 and device not in self.targets.vague:
            return True
        if path.startswith(names.inside):
            return True
        if fact.links > 1:
            # linked out of a package cache: another environment has the same inode
            return False
        there = os.fsencode(f"{self.root}/{pid}/root") + path
        return signs.identity(there) == fact.identity

    def _is_inside(self, path: bytes, names: Names) -> bool:
        """Say whether a path is ours although no file of ours has the inode.

        It was deleted or replaced since, or the file system numbers its files anew.
        """
        plain = path.removesuffix(_DELETED)
        if plain.startswith(names.inside_venv):
            return may_be_run(plain)
        if not plain.startswith(names.inside) or not is_library(plain):
            return False
        return not any(below(plain, other) is not None for other in self.targets.others)


def _judged(
    look: _Look,
    closed: list[int],
    visible: set[int],
    gpu_pids: Callable[[], set[int]] | None,
) -> tuple[list[User], int]:
    suspects: list[User] = []
    unknown = 0
    on_gpu = gpu_pids() if gpu_pids is not None and closed else set()
    for pid in closed:
        facts = processes.stat(pid, look.proc)
        if facts is None or not facts.has_memory:
            continue
        why = []
        words = processes.cmdline(pid, look.proc)
        home = look.programs.home if look.led(pid) else b"\0"
        other = signs.elsewhere(pid, look.own, look.programs, look.proc)
        if sign := signs.arguments(words, look.names, home, elsewhere=other):
            why.append(sign)
        if pid in on_gpu and not other:
            why.append("computes on a GPU")
        if why:
            suspects.append(look.user(pid, (), why))
        else:
            unknown += 1
    return suspects, unknown + len(on_gpu - visible)
