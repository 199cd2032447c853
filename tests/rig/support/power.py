# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""File layers that stop, refuse or forget, for tests of what must survive that."""

from __future__ import annotations

import errno
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.builds.files import Files

GROWING = frozenset({"mkdir", "write", "unpack", "symlink", "flush_file"})
"""What a full disk refuses."""


class PowerOff(BaseException):
    """Nothing comes after it: no handler of ours may take it for an error."""


class Layer(Files):
    """Calls `before` with the name of each operation before it is done."""

    def __init__(self, exchange: bool = True) -> None:
        self.count = 0
        self.can_exchange = exchange

    def before(self, name: str, path: Path) -> None:
        """Count; subclasses raise here."""
        self.count += 1

    def mkdir(self, folder: Path) -> None:
        """See Files."""
        self.before("mkdir", folder)
        super().mkdir(folder)

    def write(self, path: Path, text: str) -> None:
        """See Files."""
        self.before("write", path)
        super().write(path, text)

    def unpack(self, archive: zipfile.ZipFile, member: str, path: Path) -> None:
        """See Files."""
        self.before("unpack", path)
        super().unpack(archive, member, path)

    def flush_file(self, path: Path) -> None:
        """See Files."""
        self.before("flush_file", path)
        super().flush_file(path)

    def flush(self, folder: Path) -> None:
        """See Files."""
        self.before("flush", folder)
        super().flush(folder)

    def flush_all(self, folder: Path) -> None:
        """See Files; the machine of the test is spared."""
        self.before("flush_all", folder)

    def symlink(self, target: Path, path: Path) -> None:
        """See Files."""
        self.before("symlink", path)
        super().symlink(target, path)

    def rename(self, old: Path, new: Path) -> None:
        """See Files."""
        self.before("rename", old)
        super().rename(old, new)

    def exchange(self, one: Path, other: Path) -> bool:
        """See Files."""
        self.before("exchange", one)
        return self.can_exchange and super().exchange(one, other)

    def unlink(self, path: Path) -> None:
        """See Files."""
        self.before("unlink", path)
        super().unlink(path)

    def rmdir(self, folder: Path) -> None:
        """See Files."""
        self.before("rmdir", folder)
        super().rmdir(folder)


class FailingFiles(Layer):
    """The power goes off before operation `after`; a file may be half written then."""

    def __init__(self, after: int, exchange: bool = True, torn: bool = False) -> None:
        super().__init__(exchange)
        self.after = after
        self.torn = torn

    def before(self, name: str, path: Path) -> None:
        """Let nothing be done from that moment on."""
        super().before(name, path)
        if self.count < self.after:
            return
        if self.count == self.after and self.torn and name in ("write", "unpack"):
            path.write_bytes(b'{"ph')
        raise PowerOff


class FullDisk(Layer):
    """Operation `after` is refused; with `stays` whatever needs space after it too."""

    def __init__(self, after: int, *, stays: bool, exchange: bool = True) -> None:
        super().__init__(exchange)
        self.after = after
        self.stays = stays

    def before(self, name: str, path: Path) -> None:
        """Say that no space is left."""
        super().before(name, path)
        later = self.stays and self.count > self.after and name in GROWING
        if self.count == self.after or later:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))


@dataclass
class _Change:
    """One change of names, and the folders that must be flushed to keep it."""

    kind: str
    args: tuple[str, ...]
    open: set[str]
    keep: bool = False


@dataclass
class _Content:
    data: bytes
    mode: int
    flushed: bool


@dataclass
class Disk:
    """What a disk below `top` holds: names, and what of them was flushed."""

    top: Path
    names: dict[str, Any] = field(default_factory=dict)
    files: list[_Content] = field(default_factory=list)
    changes: list[_Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in sorted(self.top.rglob("*")):
            self.names[str(path)] = self.seen(path, flushed=True)

    def seen(self, path: Path, *, flushed: bool) -> Any:
        """Return what the name `path` means now."""
        if path.is_symlink():
            return ("link", os.readlink(path))
        if path.is_dir():
            return ("folder",)
        mode = path.stat().st_mode & 0o777
        self.files.append(_Content(path.read_bytes(), mode, flushed))
        return ("file", len(self.files) - 1)

    def after_cut(self, choose: Callable[[list[_Change]], None]) -> dict[str, Any]:
        """Return the names that survive; `choose` says which unflushed ones do."""
        choose([change for change in self.changes if change.open])
        names = dict(self.names)
        for change in self.changes:
            if not change.open or change.keep:
                _apply(names, change)
        return names

    def lay_out(self, names: dict[str, Any]) -> None:
        """Make the folder what the disk holds after the cut."""
        for entry in self.top.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for name in sorted(names):
            path, (kind, *rest) = Path(name), names[name]
            if not path.parent.is_dir():
                continue
            if kind == "folder":
                path.mkdir()
            elif kind == "link":
                path.symlink_to(rest[0])
            else:
                content = self.files[rest[0]]
                half = content.data[: len(content.data) // 2]
                path.write_bytes(content.data if content.flushed else half)
                path.chmod(content.mode)


class PowerCut(FailingFiles):
    """The power goes off, and what was not flushed may be lost, in any order."""

    def __init__(self, after: int, disk: Disk, exchange: bool = True) -> None:
        super().__init__(after, exchange)
        self.disk = disk

    def mkdir(self, folder: Path) -> None:
        """See Files."""
        super().mkdir(folder)
        self._note("make", folder, folder)

    def write(self, path: Path, text: str) -> None:
        """See Files; the content is flushed, the name is not."""
        super().write(path, text)
        self._note("make", path, path, flushed=True)

    def unpack(self, archive: zipfile.ZipFile, member: str, path: Path) -> None:
        """See Files; neither content nor name are flushed."""
        super().unpack(archive, member, path)
        self._note("make", path, path)

    def flush_file(self, path: Path) -> None:
        """See Files."""
        super().flush_file(path)
        for change in reversed(self.disk.changes):
            if change.args[0] == str(path) and change.kind == "make":
                self.disk.files[int(change.args[1])].flushed = True
                break

    def flush(self, folder: Path) -> None:
        """See Files."""
        super().flush(folder)
        for change in self.disk.changes:
            change.open.discard(str(folder))

    def symlink(self, target: Path, path: Path) -> None:
        """See Files."""
        super().symlink(target, path)
        self._note("make", path, path)

    def rename(self, old: Path, new: Path) -> None:
        """See Files."""
        super().rename(old, new)
        self._note("rename", old, new)

    def exchange(self, one: Path, other: Path) -> bool:
        """See Files."""
        done = super().exchange(one, other)
        if done:
            self._note("exchange", one, other)
        return done

    def unlink(self, path: Path) -> None:
        """See Files."""
        super().unlink(path)
        self._note("remove", path, path)

    def rmdir(self, folder: Path) -> None:
        """See Files."""
        super().rmdir(folder)
        self._note("remove", folder, folder)

    def _note(self, kind: str, one: Path, other: Path, flushed: bool = False) -> None:
        folders = {str(one.parent), str(other.parent)}
        args = (str(one), str(other))
        if kind == "make":
            what = self.disk.seen(one, flushed=flushed)
            args = (str(one), *map(str, what[1:]), what[0])
        self.disk.changes.append(_Change(kind, args, folders))


def lost(changes: list[_Change]) -> None:
    """Choose that nothing unflushed survives."""


def kept(changes: list[_Change]) -> None:
    """Choose that all names survive."""
    for change in changes:
        change.keep = True


def some(seed: int) -> Callable[[list[_Change]], None]:
    """Choose by chance, in no order: disks write names as they like."""

    def choose(changes: list[_Change]) -> None:
        chance = random.Random(seed)
        for change in changes:
            change.keep = chance.random() < 0.5

    return choose


def _apply(names: dict[str, Any], change: _Change) -> None:
    """Make one change of names; one whose ground was lost changes nothing."""
    if change.kind == "make":
        path, *what, kind = change.args
        names[path] = (kind, *(int(w) if kind == "file" else w for w in what))
    elif change.kind == "remove":
        names.pop(change.args[0], None)
    else:
        one, other = change.args
        first, second = _taken(names, one), _taken(names, other)
        if not first or (change.kind == "exchange" and not second):
            names.update({one + k: v for k, v in first.items()})
            names.update({other + k: v for k, v in second.items()})
            return
        names.update({other + k: v for k, v in first.items()})
        if change.kind == "exchange":
            names.update({one + k: v for k, v in second.items()})


def _taken(names: dict[str, Any], path: str) -> dict[str, Any]:
    """Take a name and all below it out, by the rest of their paths."""
    below = [n for n in names if n == path or n.startswith(path + "/")]
    return {name[len(path) :]: names.pop(name) for name in below}
