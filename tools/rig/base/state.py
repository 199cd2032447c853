# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Files that survive a crash: the state folder, JSON written whole or not at all, and
deletion that asks for proof.

The *state root* is one folder on a local disk, chosen and remembered by ``venv-local``.
Everything that the suite makes lies below it, except the link ``.venv`` and what the
target's own build writes.
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

from tools.rig.base.errors import StepFailed, UsageError

SENTINEL = ".rig-made"
"""A file of this name proves that the suite made the folder it lies in."""


@dataclass(frozen=True)
class StateRoot:
    """The layout below the state root. Properties name folders; nothing is created by
    asking for them.
    """

    path: Path

    @property
    def venvs(self) -> Path:
        """Environments, one folder a checkout."""
        return self.path / "venvs"

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
        """Create `folder` below the root with a sentinel in it, and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SENTINEL).touch()
        return folder


def place_id(path: Path) -> str:
    """Return a short name for the place of a checkout: its folder name and a hash of
    its absolute path.

    Two checkouts of one name do not share an environment, and one checkout on a NAS
    gets the same name on every host.
    """
    real = os.fspath(path.resolve())
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', path.resolve().name) or 'checkout'}-{digest}"


def write_json(path: Path, data: Any) -> None:
    """Write `data` beside `path`, flush it to the disk and rename: a reader sees the
    old file or the new one.

    Raises
    ------
    StepFailed
        When the disk is full or the folder may not be written; the old file is
        untouched.
    """
    write_text(path, json.dumps(data, indent=2, sort_keys=True, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` beside `path`, flush it and rename (see :func:`write_json`)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temp.open("w", encoding="utf-8") as fh:
            fh.write(text)
            fh.flush()
            os.fsync(fh.fileno())
        os.replace(temp, path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temp.unlink()
        raise StepFailed(
            f"cannot write {path}: {exc.strerror}", hint=f"df -h {path.parent}"
        ) from exc


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
    except (ValueError, OSError) as exc:
        raise StepFailed(
            f"cannot read {path}: {exc}",
            usual="The file was cut short or edited by hand; it holds no part of the build itself.",
            hint=f"mv '{path}' '{path}.broken'",
        ) from exc


def remove_made(folder: Path) -> None:
    """Delete a folder that the suite made, and refuse any other.

    Raises
    ------
    StepFailed
        When the sentinel file is missing.
    """
    if not folder.exists():
        return
    if folder.is_symlink() or not (folder / SENTINEL).is_file():
        raise StepFailed(
            f"will not delete {folder}: this suite did not make it",
            usual=f"A folder made here holds a file {SENTINEL}.",
            hint=f"look at '{folder}' and remove it yourself if nobody needs it",
        )
    shutil.rmtree(folder)


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path; any name is welcome except one that holds a line break.

    Raises
    ------
    UsageError
        On a newline or carriage return, which no build tool below us can quote.
    """
    text = os.fspath(path)
    if "\n" in text or "\r" in text or "\0" in text:
        raise UsageError(
            f"the path {text!r} holds a line break",
            hint="rename the folder and try again",
        )
    return Path(text)
