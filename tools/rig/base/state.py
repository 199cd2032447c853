# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the suite keeps its things, and how to write and delete them safely.

Files are written whole or not at all, and a folder is deleted only where a sentinel
proves that it is ours. The *state root* is one folder on a local disk, chosen and
remembered by ``venv-local``. Everything that the suite makes lies below it, except the
link ``.venv`` and what the target's own build writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base.errors import (
    StepFailed,
    put_aside,
    quoted,
    unwritable,
)

SENTINEL = ".rig-made"
"""A file of this name proves that the suite made the folder it lies in."""


@dataclass(frozen=True)
class StateRoot:
    """The layout below the state root.

    Properties name folders; nothing is created by asking for them.
    """

    path: Path

    @property
    def venvs(self) -> Path:
        """Links to the environments in force, one a checkout."""
        return self.path / "venvs"

    @property
    def generations(self) -> Path:
        """Environments that were built, one folder a build in one a checkout."""
        return self.path / "generations"

    @property
    def benches(self) -> Path:
        """Environments that builds happen in, one a checkout; none is served from."""
        return self.path / "benches"

    @property
    def places(self) -> Path:
        """What venv-local noted of each checkout, one JSON file a checkout."""
        return self.path / "places"

    @property
    def work(self) -> Path:
        """Lasting build folders, one folder a variant in one a checkout."""
        return self.path / "work"

    @property
    def toolkits(self) -> Path:
        """Provisioned CUDA toolkits and host compilers."""
        return self.path / "toolkits"

    @property
    def records(self) -> Path:
        """One JSON file a build, newest name last."""
        return self.path / "records"

    @property
    def logs(self) -> Path:
        """Whole output of builds and the tracebacks of unexpected errors."""
        return self.path / "logs"

    @property
    def cache(self) -> Path:
        """Download and compile caches."""
        return self.path / "cache"

    @property
    def tmp(self) -> Path:
        """TMPDIR of builds."""
        return self.path / "tmp"

    @property
    def shims(self) -> Path:
        """Generated header shims and private git configuration."""
        return self.path / "shims"

    @property
    def artifacts(self) -> Path:
        """Built wheels, one folder a build."""
        return self.path / "artifacts"

    @property
    def deps(self) -> Path:
        """FetchContent's folders, one a checkout."""
        return self.path / "deps"

    def make(self, folder: Path) -> Path:
        """Create `folder` with a sentinel in it, and return it; the root comes first.

        A folder with other people's files in it gets no sentinel: it was not made here,
        and must not be deleted from here.

        Raises
        ------
        StepFailed
            When the folder cannot be made (disk full, no permission, a file is there).
        """
        if folder != self.path:
            # made by the way, it would never be empty and never be known as ours
            self.make(self.path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not any(folder.iterdir()):
                (folder / SENTINEL).touch()
        except OSError as exc:
            raise unwritable(folder, exc) from exc
        return folder


def place_id(path: Path) -> str:
    """Return a short name for the place of a checkout: folder name and a hash.

    Two checkouts of one name do not share an environment, and one checkout on a NAS
    gets the same name on every host that mounts it in the same place.
    """
    real = path.resolve()
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    name = str(re.sub(r"[^A-Za-z0-9._-]+", "-", real.name))[:64]
    return f"{name or 'checkout'}-{digest}"


def home_of(environment: Path) -> Path:
    """Return the name under which an environment is in force, links followed or not.

    That is the link in ``venvs`` for a generation or a bench, whichever of them is on;
    locks and records go by it, since it stays when they are switched.
    """
    folder = environment.parent
    if folder.parent.name == "generations":
        return folder.parent.parent / "venvs" / folder.name
    if folder.name == "benches":
        return folder.parent / "venvs" / environment.name
    return environment


def write_json(path: Path, data: Any) -> None:
    """Write `data` as JSON; a reader sees the old file or the new one, never a part.

    Raises
    ------
    StepFailed
        When the disk is full or the folder may not be written; the old file is
        untouched.
    """
    write_text(path, json.dumps(data, indent=2, sort_keys=True, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` beside `path`, flush it to the disk and rename it.

    Raises
    ------
    StepFailed
        See :func:`write_json`.
    """
    temp = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a path that is no UTF-8 keeps its bytes
        with temp.open("w", encoding="utf-8", errors="surrogateescape") as fh:
            fh.write(text)
            fh.flush()
            os.fsync(fh.fileno())
        os.replace(temp, path)
    except OSError as exc:
        raise unwritable(path, exc) from exc
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()
    _flush_folder(path.parent)


def put(file: Path, content: bytes, mode: int) -> bool:
    """Give a program a content by rename, rights included; False where it is right.

    Whoever starts it in that moment gets the old one or the new one. Nothing is flushed
    to the disk: what is lost is made again.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        same = file.stat().st_mode & 0o777 == mode
        if same and file.read_bytes() == content:
            return False
    temp = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(fd, "wb") as fh:
            fh.write(content)
            os.fchmod(fd, mode)
        os.replace(temp, file)
    finally:
        temp.unlink(missing_ok=True)
    return True


def read_json(path: Path) -> Any | None:
    """Return the parsed file, or None when it does not exist.

    Raises
    ------
    StepFailed
        When the file exists and is not JSON: it is named and left alone.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as exc:
        raise StepFailed(
            f"cannot read {path}: {exc}",
            usual="The file was cut short or edited by hand. It holds no part of a "
            "build itself; without it the suite starts that record afresh.",
            hint=put_aside(path, ".broken"),
        ) from exc
    except OSError as exc:
        raise StepFailed(
            f"cannot read {path}: {exc.strerror}",
            hint=f"ls -ld {quoted(path)}",
        ) from exc


def remove_made(folder: Path) -> None:
    """Delete a folder that the suite made, and refuse any other.

    The sentinel goes last, so that a deletion that was broken off can be taken up.

    Raises
    ------
    StepFailed
        When the sentinel file is missing, or something in the folder stays.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    try:
        ours = not folder.is_symlink() and (
            (folder / SENTINEL).is_file() or not any(folder.iterdir())
        )
        if ours:
            for entry in folder.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != SENTINEL:
                    entry.unlink()
            (folder / SENTINEL).unlink(missing_ok=True)
            folder.rmdir()
    except OSError as exc:
        raise StepFailed(
            f"cannot delete {folder}: {exc.strerror} ({exc.filename})",
            hint=f"ls -la {quoted(folder)}",
        ) from exc
    if not ours:
        raise StepFailed(
            f"will not delete {folder}: this suite did not make it",
            usual=f"A folder made here holds a file {SENTINEL}.",
            hint=f"look at {quoted(folder)} and remove it yourself if nobody needs it",
        )


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` outlast a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
