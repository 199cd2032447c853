# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The few file operations of a switch, one method each, so that each can be the last.

Tests put a layer in this place that stops after operation N, or that forgets what was
not flushed, as a power cut does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import zipfile
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CHUNK = 1 << 20

_NO_FLUSH = frozenset(
    {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES}
)
"""Said by file systems that cannot flush a folder, and by folders closed to readers."""

_NO_EXCHANGE = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM}
)
"""Said where two names cannot change places in one step."""


class Files:
    """File operations; every one raises OSError as the system says it."""

    def mkdir(self, folder: Path) -> None:
        """Make one folder."""
        folder.mkdir()

    def write(self, path: Path, text: str) -> None:
        """Write a file and flush it; a path that is no UTF-8 keeps its bytes."""
        with path.open("w", encoding="utf-8", errors="surrogateescape") as fh:
            fh.write(text)
            fh.flush()
            os.fsync(fh.fileno())

    def unpack(self, archive: zipfile.ZipFile, member: str, path: Path) -> None:
        """Write one member of an archive, with its mode; :meth:`flush_file` is owed."""
        info = archive.getinfo(member)
        with archive.open(info) as source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
        path.chmod((info.external_attr >> 16) & 0o777 or 0o644)

    def flush_file(self, path: Path) -> None:
        """Bring a file's content to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def flush(self, folder: Path) -> None:
        """Bring the names in a folder to the disk, where its file system can."""
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            if exc.errno not in _NO_FLUSH:
                raise

    def flush_all(self, folder: Path) -> None:
        """Bring everything on the file system of a folder to the disk."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if call is None or call(ctypes.c_int(fd)) != 0:
                os.sync()
        finally:
            os.close(fd)

    def symlink(self, target: Path, path: Path) -> None:
        """Make a symbolic link at `path`."""
        path.symlink_to(target)

    def rename(self, old: Path, new: Path) -> None:
        """Give `old` the name `new`, in place of what has that name."""
        os.replace(old, new)

    def exchange(self, one: Path, other: Path) -> bool:
        """Let two names change places in one step; False where that is not possible."""
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            return False
        names = (os.fsencode(one), os.fsencode(other))
        flags = ctypes.c_uint(_RENAME_EXCHANGE)
        if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags) == 0:
            return True
        code = ctypes.get_errno()
        if code in _NO_EXCHANGE:
            return False
        raise OSError(code, os.strerror(code), os.fspath(one))

    def unlink(self, path: Path) -> None:
        """Remove a file or a link."""
        path.unlink()

    def rmdir(self, folder: Path) -> None:
        """Remove an empty folder."""
        folder.rmdir()


def save(files: Files, path: Path, text: str) -> None:
    """Write `text` beside `path`, flushed, and rename it: all of it or nothing."""
    temp = path.with_name(f".{path.name}.rig-new")
    try:
        files.write(temp, text)
        files.rename(temp, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(temp)
        raise
    files.flush(path.parent)


def missing(folders: list[Path]) -> list[Path]:
    """Return the folders that are not there, those above them too, deepest first."""
    found: dict[Path, None] = {}
    for folder in folders:
        for one in (folder, *folder.parents):
            if one.exists():
                break
            found[one] = None
    return sorted(found, key=lambda path: len(path.parts), reverse=True)
