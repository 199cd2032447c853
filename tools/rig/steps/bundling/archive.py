# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Packs a bundle and puts it in its place, whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import secrets
import shlex
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from tools.rig.base.errors import UsageError, unwritable
from tools.rig.base.paths import typed_path

SUFFIX = ".tar.gz"


def outputs(output: Path | None, folder: Path, now: float) -> tuple[Path, Path]:
    """Return where the archive and its summary go.

    Parameters
    ----------
    output
        As the user named it; None for a name with the time in `folder`.
    now
        Seconds since 1970.

    Raises
    ------
    UsageError
        When one of them exists already, or the folder does not.
    """
    if output is None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        output = folder / f"rig-bundle-{stamp}{SUFFIX}"
    archive = typed_path(output)
    bare = archive.name
    for suffix in (SUFFIX, ".tgz"):
        bare = bare.removesuffix(suffix)
    summary = archive.with_name(f"{bare}.md")
    if archive.is_dir():
        raise UsageError(
            f"--output {archive} is a folder",
            hint=f"invoke bundle --output {shlex.quote(f'{archive}/bundle{SUFFIX}')}",
        )
    if not archive.parent.is_dir():
        raise UsageError(
            f"--output {archive}: there is no folder {archive.parent}",
            hint=f"mkdir -p {shlex.quote(os.fspath(archive.parent))}",
        )
    if archive.exists() and not archive.is_file():
        raise UsageError(
            f"--output {archive} is no file", hint=f"invoke bundle --output x{SUFFIX}"
        )
    for path in (archive, summary):
        _refuse_existing(path)
    return archive, summary


def packed(files: Mapping[str, bytes], top: str, now: float) -> bytes:
    """Return the bytes of an archive with one folder `top`, in the order of names.

    Nothing in it tells who made it: no owner, no mode of the original, one time.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=int(now)) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        tar.addfile(_entry(top, now, folder=True))
        for name in sorted(files):
            entry = _entry(f"{top}/{name}", now)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def place(contents: Mapping[Path, bytes]) -> None:
    """Write files beside their places and put all of them there, or none.

    What is there already is never replaced, not even by a race; only the owner may
    read what is written.

    Raises
    ------
    UsageError
        When one of them exists.
    StepFailed
        When the disk is full or the folder may not be written.
    """
    temps: dict[Path, Path] = {}
    made: list[Path] = []
    try:
        for path, content in contents.items():
            temp = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}")
            temps[path] = temp
            _write(temp, content)
        for path, temp in temps.items():
            _put(temp, path)
            made.append(path)
    except BaseException as exc:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        if isinstance(exc, OSError):
            first = next(iter(contents))
            raise unwritable(first, exc, "Nothing is left behind.") from exc
        raise
    finally:
        for temp in temps.values():
            with contextlib.suppress(OSError):
                temp.unlink()


def _write(temp: Path, content: bytes) -> None:
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as fh:
        os.fchmod(fd, 0o600)
        fh.write(content)
        fh.flush()
        os.fsync(fd)


def _put(temp: Path, path: Path) -> None:
    try:
        os.link(temp, path)
    except FileExistsError:
        _refuse_existing(path)
        raise
    except OSError:
        # a file system without hard links
        _refuse_existing(path)
        os.rename(temp, path)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(
            f"{path} is there already, and is not overwritten",
            hint=f"rm {shlex.quote(os.fspath(path))}, or name another --output",
        )


def _entry(name: str, now: float, *, folder: bool = False) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    entry.mode = 0o700 if folder else 0o600
    entry.mtime = int(now)
    entry.uname = entry.gname = ""
    return entry
