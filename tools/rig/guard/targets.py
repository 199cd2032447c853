# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build would overwrite: the environment, and the checkout's own libraries.

Files are known by device and inode, so that it does not matter by which name a process
reached them. The device is the one that /proc/PID/maps prints: on btrfs and overlay it
is not the one of stat(2), so one file of each file system is mapped here to see.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.rig.guard.places import Place, below, place_of
from tools.rig.guard.reigns import Reign
from tools.rig.guard.signs import Programs, identity
from tools.rig.host import processes

_WORKERS = 8
"""Folders listed at once: on a network disk each listing is a round trip or two."""

_TRIES = 20
"""Files of one file system that are tried: an empty one cannot be mapped."""

_TEXT = tuple(
    b".py .pyi .pyc .h .hh .hpp .hxx .inc .c .cc .cpp .cu .cuh .txt .md .rst .json "
    b".toml .yaml .yml .cfg .ini .html .css .js .map .cmake .pth .csv .svg .typed "
    b".template .jinja".split()
)
"""Names that no program runs from: a search tool maps them for a moment to read."""

_SKIPPED = frozenset({b".git", b".deps", b"__pycache__", b"node_modules"})
"""Folders of a checkout that hold nothing a server loads, and many files."""


@dataclass(frozen=True)
class FileFact:
    """One file of ours: its path, its links, and its identity as stat(2) tells it."""

    path: bytes
    links: int
    identity: tuple[int, int]


@dataclass(frozen=True)
class Targets:
    """What is looked for.

    ``files`` maps a device as maps prints it to {inode in decimal: file}. ``vague``
    holds the devices whose number says less than stat(2): several btrfs subvolumes
    share one, so an inode alone proves nothing there. ``spellings`` are the paths of
    the environment as users type them, links unresolved; ``bin`` is the identity of its
    folder of programs; ``reign`` tells who of those that were started by the link to
    the environment in force runs this one; ``others`` are environments inside the
    checkout.
    """

    venv: Path
    checkout: Path | None
    files: Mapping[bytes, Mapping[bytes, FileFact]] = field(default_factory=dict)
    vague: frozenset[bytes] = frozenset()
    spellings: tuple[bytes, ...] = ()
    bin: tuple[int, int] | None = None
    reign: Reign | None = None
    others: tuple[bytes, ...] = ()
    venv_place: Place | None = None
    checkout_place: Place | None = None

    @classmethod
    def of(cls, venv: Path, checkout: Path | None = None) -> Targets:
        """Walk both folders and return what is in them.

        Parameters
        ----------
        venv
            The environment or a link to it. It need not exist.
        checkout
            The folder whose ``.so`` files a build overwrites; None for none.
        """
        real = Path(os.path.realpath(venv))
        source = None if checkout is None else Path(os.path.realpath(checkout))
        found, others = _files(real, source)
        devices = _devices(found)
        files: dict[bytes, dict[bytes, FileFact]] = {}
        for fact in found:
            shown = devices[fact.identity[0]]
            files.setdefault(shown, {})[b"%d" % fact.identity[1]] = fact
        mounts = processes.mounts()
        return cls(
            venv=real,
            checkout=source,
            files=files,
            vague=frozenset(
                shown for dev, shown in devices.items() if shown != _printed(dev)
            ),
            spellings=_spellings(venv, real, checkout, source),
            bin=identity(real / "bin"),
            reign=Reign.of(real),
            others=tuple(others),
            venv_place=place_of(os.fsencode(real), mounts),
            checkout_place=None
            if source is None
            else place_of(os.fsencode(source), mounts),
        )

    @property
    def programs(self) -> Programs:
        """Where its programs are, and by which link they may be started."""
        if self.reign is None:
            return Programs(self.bin)
        return Programs(self.bin, self.reign.home + b"/", self.reign.bin)

    def led(self, start: int | None) -> bool:
        """Say whether a link led here for a process that started then."""
        return self.reign is None or self.reign.covers(start)

    def shown(self, path: bytes) -> str:
        """Return a path as short as a reader of messages wants it."""
        for folder in (self.venv, self.checkout):
            rest = folder and below(path, os.fsencode(folder))
            if rest:
                return os.fsdecode(rest)
        return os.fsdecode(path)


def may_be_run(name: bytes) -> bool:
    """Say whether a file of the environment may be mapped by what runs from it."""
    return not name.endswith(_TEXT)


def is_library(name: bytes) -> bool:
    """Say whether a file is a shared library: ``x.so``, ``x.so.1``, ``x.so.old``."""
    return name.endswith(b".so") or b".so." in name


def maps_device(file: Path) -> bytes | None:
    """Return the device that maps prints for a file, or None when it cannot be mapped.

    The file is mapped for a moment; nothing is read from it.
    """
    try:
        with (
            file.open("rb") as fh,
            mmap.mmap(fh.fileno(), 1, access=mmap.ACCESS_READ),
        ):
            inode = b"%d" % os.fstat(fh.fileno()).st_ino
            table = processes.read("/proc/self/maps")
    except (OSError, ValueError):
        return None
    candidates = [
        fields
        for fields in (line.split(None, 5) for line in table.splitlines())
        if len(fields) == 6 and fields[4] == inode
    ]
    # another mapped file may have this inode on another device
    own = [f for f in candidates if f[5].endswith(os.fsencode(file.name))]
    chosen = own or candidates
    return chosen[-1][3] if chosen else None


@dataclass(frozen=True)
class _Folder:
    path: bytes
    folders: tuple[bytes, ...] = ()
    files: tuple[FileFact, ...] = ()
    is_environment: bool = False


def _files(venv: Path, checkout: Path | None) -> tuple[list[FileFact], list[bytes]]:
    top = os.fsencode(venv)
    found: list[FileFact] = []
    others: list[bytes] = []
    with ThreadPoolExecutor(_WORKERS) as pool:
        for folder in _walk(pool, top, may_be_run, frozenset()):
            found += folder.files
        if checkout is not None:
            source = os.fsencode(checkout)
            skipped = frozenset({*_SKIPPED, top})
            for folder in _walk(pool, source, is_library, skipped):
                if folder.is_environment:
                    others.append(folder.path)
                else:
                    found += folder.files
    return found, others


def _walk(
    pool: ThreadPoolExecutor,
    top: bytes,
    wanted: Callable[[bytes], bool],
    skipped: frozenset[bytes],
) -> Iterator[_Folder]:
    """Yield the folders below `top`, level by level; other environments end a branch.

    `skipped` holds names and whole paths that are not entered.
    """
    level = [top]
    while level:
        below_level: list[bytes] = []
        for folder in pool.map(lambda path: _listed(path, wanted, skipped), level):
            yield folder
            if not folder.is_environment or folder.path == top:
                below_level += folder.folders
        level = below_level


def _listed(
    path: bytes, wanted: Callable[[bytes], bool], skipped: frozenset[bytes]
) -> _Folder:
    folders: list[bytes] = []
    files: list[FileFact] = []
    is_environment = False
    # gone meanwhile, or closed to us: what is mapped from there is still seen by path
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in skipped and entry.path not in skipped:
                    folders.append(entry.path)
            elif entry.name == b"pyvenv.cfg":
                is_environment = True
            elif wanted(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    # not entry.inode(): overlay and FUSE may say another one there
                    info = entry.stat(follow_symlinks=False)
                    identity = (info.st_dev, info.st_ino)
                    files.append(FileFact(entry.path, info.st_nlink, identity))
    return _Folder(path, tuple(folders), tuple(files), is_environment)


def _devices(files: Iterable[FileFact]) -> dict[int, bytes]:
    """Return for each st_dev what maps prints for it."""
    found: dict[int, bytes] = {}
    tries: dict[int, int] = {}
    for fact in files:
        device = fact.identity[0]
        if device in found or tries.get(device, 0) >= _TRIES:
            continue
        tries[device] = tries.get(device, 0) + 1
        shown = maps_device(Path(os.fsdecode(fact.path)))
        if shown is not None:
            found[device] = shown
    for device in tries:
        found.setdefault(device, _printed(device))
    return found


def _printed(device: int) -> bytes:
    return b"%02x:%02x" % (os.major(device), os.minor(device))


def _spellings(
    venv: Path, real: Path, checkout: Path | None, source: Path | None
) -> tuple[bytes, ...]:
    """Return the names of the environment that a command line may hold."""
    names = [real, venv.absolute()]
    for folder in (checkout, source):
        if folder is not None and os.path.realpath(folder / ".venv") == str(real):
            names.append(folder.absolute() / ".venv")
    return tuple(dict.fromkeys(os.fsencode(name) for name in names))
