# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a toolkit or compiler that the suite brought is still as it was brought.

A list of all files lies in each folder. A look compares kind, size, rights and time of
each, which takes milliseconds; only a file whose time differs is read. What an earlier
version brought has no list: there the programs that nothing works without are looked
at.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.rig.base.errors import CannotError
from tools.rig.base.state import SENTINEL, write_text
from tools.rig.builds.workbench import refuse_foreign

LIST = "rig-files.json"
"""The list's name, at the top of the folder."""

RECORD = "rig-toolkit.json"
"""Beside it in a toolkit: what it was made of."""


def seal(folder: Path) -> None:
    """Write the list of all files that lie below `folder` now.

    Raises
    ------
    StepFailed
        When it cannot be written.
    OSError
        When a file cannot be read.
    """
    listed = {}
    for path in _files(folder):
        seen = path.lstat()
        if stat.S_ISLNK(seen.st_mode):
            entry: Any = os.readlink(path)
        else:
            runs = bool(seen.st_mode & 0o111)
            entry = [seen.st_size, seen.st_mtime_ns, runs, _digest(path)]
        listed[os.fspath(path.relative_to(folder))] = entry
    write_text(folder / LIST, json.dumps(listed, separators=(",", ":")) + "\n")


def is_ours(folder: Path) -> bool:
    """Say whether the suite made the folder, also where one of its marks was lost."""
    return any((folder / mark).is_file() for mark in (SENTINEL, LIST, RECORD))


def damage(folder: Path, needed: Iterable[str] = (), *, deep: bool = False) -> str:
    """Say what is wrong with a folder that the suite brought, or nothing.

    Parameters
    ----------
    folder
        A brought toolkit or compiler. Any other folder is never damaged.
    needed
        Files that must be there where there is no list.
    deep
        Whether every file is read, and not only those whose time differs.
    """
    if not is_ours(folder):
        return ""
    file = folder / LIST
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))
        entries = [(str(name), was) for name, was in listed.items()]
    except FileNotFoundError:
        return _first(_lacks(folder / name, name) for name in needed)
    except OSError as exc:
        return f"{LIST} cannot be read ({exc.strerror})"
    except (ValueError, AttributeError):
        return f"{LIST} is cut short"
    return _first(_changed(folder / name, name, was, deep) for name, was in entries)


def refuse_damaged(folder: Path, details: Iterable[str] = ()) -> None:
    """Raise for a brought folder that is at fault when a compile has just failed.

    Parameters
    ----------
    folder
        Where toolkit or compiler lies; one that the suite did not bring is not judged.
    details
        What the compiler said.

    Raises
    ------
    CannotError
        When a file differs from what was brought, or nothing tells whether one does.
    """
    if not is_ours(folder):
        return
    why = damage(folder, deep=True)
    if not why and not (folder / LIST).is_file():
        why = "it was brought without a list of its files, and does not work"
    if why:
        raise unusable(folder, why, details)


def unusable(folder: Path, why: str, details: Iterable[str] = ()) -> CannotError:
    """Return the error for a damaged folder, with the command that takes it away."""
    return CannotError(
        f"{folder} is damaged: {why}",
        details=details,
        usual="The suite brought it, and brings it again once it is out of the way.",
        hint=f"rm -r {shlex.quote(os.fspath(folder))}",
    )


def refuse(final: Path, why: str) -> None:
    """Refuse what lies at the place of something new and cannot be replaced.

    Raises
    ------
    StepFailed
        When it is somebody else's.
    CannotError
        When it is damaged and may not be moved.
    """
    if not is_ours(final):
        refuse_foreign(final)
    elif not os.access(final.parent, os.W_OK):
        raise unusable(final, why)


def set_aside(final: Path, work: Path) -> None:
    """Move a damaged folder of ours into the work folder, which is deleted later."""
    if is_ours(final):
        os.rename(final, work / "damaged")


def _files(folder: Path) -> Iterable[Path]:
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in sorted([*names, *links]):
            path = Path(top, name)
            if path.parent != folder or name not in (LIST, SENTINEL):
                yield path


def _first(problems: Iterable[str]) -> str:
    return next((problem for problem in problems if problem), "")


def _lacks(path: Path, name: str) -> str:
    try:
        empty = path.stat().st_size == 0
    except OSError:
        return f"{name} is missing"
    if empty:
        return f"{name} is empty"
    runs = path.parent.name != "bin" or path.suffix or os.access(path, os.X_OK)
    return "" if runs else f"{name} is not executable"


def _changed(path: Path, name: str, was: Any, deep: bool) -> str:
    try:
        seen = path.lstat()
        if isinstance(was, str):
            same = stat.S_ISLNK(seen.st_mode) and os.readlink(path) == was
            return "" if same else f"{name} leads elsewhere"
        size, time, runs, digest = was
        if not stat.S_ISREG(seen.st_mode):
            return f"{name} is no file any more"
        if seen.st_size != size:
            return f"{name} has {seen.st_size} of {size} bytes"
        if runs and not os.access(path, os.X_OK):
            return f"{name} is not executable"
        if not os.access(path, os.R_OK):
            return f"{name} may not be read"
        # a copy of the whole folder may have lost its times: then the content decides
        if (deep or seen.st_mtime_ns != time) and _digest(path) != digest:
            return f"{name} has another content"
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} is missing"
    except OSError as exc:
        return f"{name} cannot be read ({exc.strerror})"
    except (TypeError, ValueError):
        return f"{LIST} is cut short"
    return ""


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as fh:
        while chunk := fh.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
