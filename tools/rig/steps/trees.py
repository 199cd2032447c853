# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Small generated folders: named after their content, written beside and renamed.

A build that runs keeps the folder it was given, since another content is another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.rig.base.errors import StepFailed, unwritable
from tools.rig.base.state import SENTINEL

LINK_PLACES = (Path("/var/tmp"), Path("/tmp"))
"""Where a link without blanks may lie; the first one survives a reboot."""


@dataclass(frozen=True)
class Tree:
    """What a folder shall hold: texts and link targets by relative name."""

    name: str
    files: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)


def publish(folder: Path, tree: Tree) -> Path:
    """Make ``folder/<tree.name>`` hold `tree`, and return it.

    A folder that already does is left alone, with whatever else was put into it; a
    damaged one is replaced. Only the user may read it.

    Raises
    ------
    StepFailed
        When the disk is full or the folder may not be written.
    """
    final = folder / tree.name
    if _holds(final, tree):
        return final
    temp = folder / f".{tree.name}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(temp, tree)
        if os.path.lexists(final):
            os.rename(final, temp / ".replaced")
        os.rename(temp, final)
        shutil.rmtree(final / ".replaced", ignore_errors=True)
    except OSError as exc:
        shutil.rmtree(temp, ignore_errors=True)
        # someone else made the same content in the meantime
        if _holds(final, tree):
            return final
        raise unwritable(final, exc) from exc
    return final


def is_plain(path: Path) -> bool:
    """Say whether nvcc, which splits its variables, takes this path as one word."""
    return all(c.isalnum() or c in "/_-.+=@%:~" for c in os.fspath(path))


def plain_path(path: Path, places: Sequence[Path] = LINK_PLACES) -> Path:
    """Return `path`, or a link to it whose name has no blank, quote or comma in it.

    The link lies in a folder that only this user may enter, so nobody else can point it
    elsewhere. Its name depends on `path` alone: compilers write it into dependency
    files, and the next build shall find it again.

    Raises
    ------
    StepFailed
        When no such folder can be made.
    """
    if is_plain(path):
        return path
    for place in places:
        link = link_for(path, place)
        with contextlib.suppress(OSError):
            link.parent.mkdir(mode=0o700, exist_ok=True)
            mode = link.parent.lstat()
            if (
                not stat.S_ISDIR(mode.st_mode)
                or mode.st_uid != os.geteuid()
                or mode.st_mode & 0o077
            ):
                continue
            (link.parent / SENTINEL).touch()
            if not link.is_symlink() or os.readlink(link) != os.fspath(path):
                temp = link.with_name(f".{secrets.token_hex(4)}")
                temp.symlink_to(path, target_is_directory=True)
                os.replace(temp, link)
            return link
    raise StepFailed(
        f"nvcc cannot be told the path {path}, and no link to it can be made below "
        + " or ".join(map(str, places)),
        usual="nvcc splits NVCC_PREPEND_FLAGS on blanks.",
        hint="export ONECAT_LOCAL_ROOT=/a/folder/without/blanks",
    )


def link_for(path: Path, place: Path) -> Path:
    """Return where the link to `path` lies below `place`."""
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return place / f"rig-links-{os.geteuid()}" / digest


def _write(temp: Path, tree: Tree) -> None:
    temp.mkdir(mode=0o700)
    (temp / SENTINEL).touch()
    for name, text in tree.files.items():
        path = temp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as fh:
            fh.write(text.encode("utf-8", "surrogateescape"))
            fh.flush()
            os.fsync(fh.fileno())
    for name, target in tree.links.items():
        path = temp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def _holds(final: Path, tree: Tree) -> bool:
    try:
        return all(
            (final / name).read_bytes() == text.encode("utf-8", "surrogateescape")
            for name, text in tree.files.items()
        ) and all(
            os.readlink(final / name) == target for name, target in tree.links.items()
        )
    except OSError:
        return False
