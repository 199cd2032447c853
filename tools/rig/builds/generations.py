# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Generations: whole environments side by side, of which one link names the active.

``<root>/generations/<place>/<id>/`` is an environment at its final path. Its mark,
written last and flushed, says that it is complete and what it was made of. Who makes
one leaves a note beside it, so that what a killed build left can be told from what
another one is still making.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import regex as re

from tools.rig.base.errors import StepFailed, UsageError, quoted, unwritable
from tools.rig.base.state import SENTINEL, StateRoot, remove_made, write_text
from tools.rig.builds.files import Files, save
from tools.rig.builds.generation import (
    MARK,
    NOTE,
    Generation,
    mark_text,
    note_of,
    read,
    sizes,
)
from tools.rig.builds.placed import Placed, active_id, folder_of, placed
from tools.rig.guard import lease
from tools.rig.guard.reigns import STATE

__all__ = ["MARK", "STATE", "Generation", "mark_text", "read"]
__all__ += ["Placed", "active_id", "folder_of", "placed"]

SIZES_S = 2.0
"""Seconds that a listing spends on sizes; what was not reached has none."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def listing(
    root: StateRoot,
    place: str,
    *,
    sizes_s: float = SIZES_S,
    note: Placed | None = None,
) -> list[Generation]:
    """Return the generations of a place, newest first, the incomplete ones too.

    Parameters
    ----------
    sizes_s
        Seconds for measuring sizes; 0 measures none.
    note
        What the last switch noted; it is read when None.

    Raises
    ------
    StepFailed
        See :func:`placed`.
    """
    deadline = time.monotonic() + sizes_s
    note = placed(root, place) if note is None else note
    active, before = active_id(root, place), note.previous
    out = []
    for folder in sorted(_folders(root, place), reverse=True):
        own, total = sizes(folder, deadline) or (None, None)
        out.append(
            replace(
                read(folder),
                active=folder.name == active,
                previous=folder.name == before and folder.name != active,
                own_bytes=own,
                total_bytes=total,
            )
        )
    return out


def find(root: StateRoot, place: str, wish: str = "") -> Generation:
    """Return the complete generation that `wish` names.

    Parameters
    ----------
    wish
        An id, a beginning that only one id has, or nothing for the previous one.

    Raises
    ------
    UsageError
        When none or several are meant, or when it is not complete.
    """
    known = listing(root, place, sizes_s=0)
    hint = "invoke builds"
    if wish:
        exact = [g for g in known if g.id == wish]
        found = exact or [g for g in known if g.id.startswith(wish)]
        what = f"no build {wish!r} here" if not found else f"{wish!r} names several"
    else:
        found = [g for g in known if g.previous]
        what = "there is no previous build to go back to"
        other = newest_kept(known)
        if other is not None:
            # the note of the last switch may be gone, and the builds are there
            hint = f"invoke activate --build {other.id}"
    if len(found) != 1:
        shown = [g.id for g in found or known]
        raise UsageError(what, details=shown, hint=hint)
    if not found[0].complete:
        why = found[0].problem or "it was never finished"
        raise UsageError(
            f"the build {found[0].id} is no whole one: {why}", hint="invoke builds"
        )
    return found[0]


def newest_kept(known: Sequence[Generation]) -> Generation | None:
    """Return the newest whole build that is not in force, a proved one if there is.

    Parameters
    ----------
    known
        All of a place, newest first, from :func:`listing`.
    """
    kept = [one for one in known if one.complete and not one.active]
    return next((one for one in kept if one.verified), kept[0] if kept else None)


def lost(root: StateRoot, place: str) -> Generation | None:
    """Return the build to bring back into force where the link to it is gone.

    That is the one that was, else the newest that is kept; None without any.
    """
    try:
        turns = placed(root, place).turns
    except StepFailed:
        turns = ()
    known = listing(root, place, sizes_s=0, note=Placed())
    last = turns[-1].id if turns else ""
    was = [one for one in known if one.id == last and one.complete]
    return was[0] if was else newest_kept(known)


def begin(root: StateRoot, place: str, name: str, command: str = "") -> Path:
    """Announce a generation and return the folder to make the environment in.

    The folder itself is left to ``uv.make_venv``, which renames a whole environment
    there, sentinel included.

    Raises
    ------
    StepFailed
        When it is there already, or nothing can be written.
    """
    home = folder_of(root, place)
    if not re.fullmatch(_NAME, name):
        raise StepFailed(f"{name!r} is no name for a build", hint="invoke builds")
    if os.path.lexists(home / name):
        raise StepFailed(f"{home / name} is there already", hint="invoke builds")
    root.make(home.parent)
    root.make(home)
    write_text(note_of(home / name), lease.dumped(lease.holder(command)))
    return home / name


def finish(made: Generation, files: Files | None = None) -> Generation:
    """Mark an environment as complete, once all of it is on the disk.

    ``made`` and ``bytes`` are filled in where empty.

    Raises
    ------
    StepFailed
        When the disk is full; the environment then stays incomplete.
    """
    files = files or Files()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    total = made.bytes or (sizes(made.folder, None) or (0, 0))[1]
    whole = replace(made, made=made.made or now, bytes=total, complete=True)
    try:
        files.flush_all(made.folder)
        save(files, made.folder / MARK, mark_text(whole))
        if not (made.folder / SENTINEL).exists():
            files.write(made.folder / SENTINEL, "")
        with contextlib.suppress(FileNotFoundError):
            files.unlink(note_of(made.folder))
    except OSError as exc:
        raise unwritable(made.folder / MARK, exc) from exc
    return whole


def prune(
    found: Sequence[Generation],
    keep: int,
    need_bytes: int = 0,
    in_use: Collection[str] = (),
) -> tuple[str, ...]:
    """Return which generations to remove, the oldest first.

    Never the active, the previous, one that is in use, and one that someone is making.
    Of the others those that are not whole, the good ones beyond the newest `keep`, all
    that were never proved but the newest, and as many more as free `need_bytes`.

    Parameters
    ----------
    found
        All of a place, newest first, from :func:`listing`.
    keep
        How many whole ones to keep, the protected ones counted.
    need_bytes
        Bytes to free.
    in_use
        Ids that processes run from.
    """
    good = [g.id for g in found if g.complete and g.verified]
    unproved = [g.id for g in found if g.complete and not g.verified]
    # the newest may wait for those who use what is in force
    beyond = {*good[max(keep, 0) :], *unproved[1:]}
    out, freed = [], 0
    free = [g for g in found if not (g.active or g.previous or g.live)]
    free = [g for g in reversed(free) if g.id not in in_use]
    for one in free:
        if not one.complete or one.id in beyond:
            out.append(one.id)
            freed += one.own_bytes or 0
    for one in free:
        if freed >= need_bytes:
            break
        if one.id not in out:
            out.append(one.id)
            freed += one.own_bytes or 0
    return tuple(sorted(out))


def remove(root: StateRoot, place: str, name: str) -> None:
    """Delete a generation and its kept wheel; the caller holds the lock of the place.

    Raises
    ------
    StepFailed
        When it is the active one, or something of it stays.
    """
    folder = folder_of(root, place) / name
    if not re.fullmatch(_NAME, name) or name == active_id(root, place):
        raise StepFailed(
            f"will not delete {folder}: it is the active one, or none",
            hint="invoke builds",
        )
    try:
        # first: what is broken off half-way must not look whole
        (folder / MARK).unlink(missing_ok=True)
        for beside in folder.parent.glob(f".{name}.*"):
            if beside.is_dir() and not beside.is_symlink():
                shutil.rmtree(beside)
            else:
                beside.unlink()
    except OSError as exc:
        raise StepFailed(
            f"cannot delete {exc.filename}: {exc.strerror}",
            hint=f"ls -la {quoted(folder)}",
        ) from exc
    remove_made(folder)
    remove_made(root.artifacts / name)


def sweep(root: StateRoot, place: str) -> tuple[str, ...]:
    """Delete what killed builds left, and return the ids; the lock is the caller's.

    Raises
    ------
    StepFailed
        See :func:`remove`.
    """
    active = active_id(root, place)
    names = {folder.name for folder in _folders(root, place)}
    names |= {note.name[1 : -len(NOTE)] for note in _notes(root, place)}
    gone = []
    for name in sorted(names):
        one = read(folder_of(root, place) / name)
        if not (one.complete or one.live or one.problem or name == active):
            remove(root, place, name)
            gone.append(name)
    return tuple(gone)


def _folders(root: StateRoot, place: str) -> list[Path]:
    home = folder_of(root, place)
    if not home.is_dir():
        return []
    return [p for p in home.iterdir() if p.is_dir() and not p.name.startswith(".")]


def _notes(root: StateRoot, place: str) -> Iterable[Path]:
    return folder_of(root, place).glob(f".*{NOTE}")
