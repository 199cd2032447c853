# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Brings a generation into force: its libraries and the link, all or none.

Everything is written beside its place first, flushed, and noted in a journal; then only
renames are left. A process that has an old library mapped keeps its inode. Whatever
stops us, :func:`settle` undoes what was written as long as the journal does not say
"switch", and makes the renames that are missing once it does.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shlex
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import StepFailed, UsageError, put_aside, quoted, unwritable
from tools.rig.base.state import SENTINEL, StateRoot, read_json
from tools.rig.builds import generations, journals
from tools.rig.builds.files import Files, missing, save
from tools.rig.builds.generations import Generation, Placed
from tools.rig.builds.journals import Journal, Pair
from tools.rig.builds.wheel import BROKEN
from tools.rig.guard import reigns


@dataclass(frozen=True)
class Switched:
    """What a switch did.

    ``placed`` and ``removed`` are files of the checkout, ``kept`` is where an
    environment that was no generation went.
    """

    active: str
    previous: str | None
    placed: tuple[Path, ...]
    removed: tuple[Path, ...]
    kept: Path | None
    seconds: float


def active(root: StateRoot, place: str) -> Generation | None:
    """Return the generation in force, or None: no link, or an environment of before."""
    name = generations.active_id(root, place)
    if name is None:
        return None
    found = generations.read(generations.folder_of(root, place) / name)
    return dataclasses.replace(found, active=True)


def journals_of(root: StateRoot, place: str) -> tuple[Path, ...]:
    """Return where a journal may lie: ours, and that of an earlier version."""
    ours = generations.folder_of(root, place) / "switch.json"
    return ours, root.path / "overlay" / f"{place}.json"


def settle(root: StateRoot, place: str, *, files: Files | None = None) -> str:
    """Finish or undo what an earlier command left, and say which; empty for nothing.

    Raises
    ------
    StepFailed
        When the journal cannot be read, or a file cannot be renamed or removed; the
        journal stays, so that the next command tries again.
    """
    files = files or Files()
    said = [journals.settle(file, files) for file in journals_of(root, place)]
    return "".join(said[:1]) or said[1]


def switch(
    root: StateRoot,
    place: str,
    to: Generation,
    *,
    head: str | None = None,
    force: bool = False,
    before: Callable[[], object] | None = None,
    previous: str | None = None,
    files: Files | None = None,
) -> Switched:
    """Bring a complete generation into force.

    The caller holds the lock of the place.

    Parameters
    ----------
    root, place
        Whose environment ``<root>/venvs/<place>`` is.
    to
        From :func:`generations.find` or :func:`generations.finish`.
    head
        The checkout's commit in full: libraries of another one are refused. None does
        not ask.
    force
        Place libraries of another commit too.
    before
        Called when all is written and only the renames are left: the last look at who
        uses the environment. What it raises undoes the switch.
    previous
        What is noted as the one to go back to, empty for none; the one in force until
        now when None.
    files
        The file operations.

    Raises
    ------
    UsageError
        When the checkout's commit is another one than the libraries'.
    StepFailed
        When the wheel is broken or the disk is full: then nothing is changed. When a
        rename fails after the first one, the next :func:`settle` goes on.
    """
    began = time.monotonic()
    files = files or Files()
    settle(root, place, files=files)
    _check(root, place, to, head, force)
    try:
        kept = _adopted(root, place, files)
    except OSError as exc:
        raise unwritable(root.venvs / place, exc) from exc
    journal, note = _plan(root, place, to, kept, previous)
    was = kept.id if kept else generations.active_id(root, place) or ""
    _stage(journal, note, to, was, before, files)
    try:
        journals.settle(journal.file, files)
    except KeyboardInterrupt:
        # some renames, some milliseconds: it is over sooner than it is explained
        settle(root, place, files=files)
        raise
    return Switched(
        active=to.id,
        previous=note.previous,
        placed=tuple(pair.path for pair in journal.libraries),
        removed=journal.remove,
        kept=kept.folder if kept else None,
        seconds=time.monotonic() - began,
    )


def _check(
    root: StateRoot, place: str, to: Generation, head: str | None, force: bool
) -> None:
    ours = to.folder.parent == generations.folder_of(root, place)
    if not ours or not (to.folder / generations.MARK).is_file():
        raise StepFailed(f"{to.folder} is not complete", hint="invoke builds")
    if to.mode != "editable":
        return
    for _, path in to.libraries:
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise StepFailed(
                f"the build {to.id} holds {path}, which leads out of its tree",
                hint="invoke builds",
            )
        if (Path(to.checkout) / path).is_dir():
            raise StepFailed(
                f"{Path(to.checkout) / path} is a folder, and should be a library",
                hint=f"ls -la {quoted(Path(to.checkout) / path)}",
            )
    if head is not None and head != to.head and not force:
        theirs = to.head or "a commit that is not known"
        raise UsageError(
            f"the libraries of {to.id} are of {theirs}, the checkout is at {head}",
            usual="Libraries and Python files of different commits do not fit.",
            hint=f"git -C {quoted(Path(to.checkout))} checkout {to.head}, or add "
            "--any-commit"
            if to.head
            else "add --any-commit to place them all the same",
        )


def _adopted(root: StateRoot, place: str, files: Files) -> Generation | None:
    """Mark an environment at the place itself as what it becomes: a generation.

    Nobody knows what it placed into the checkout, so it has no mode.
    """
    folder = root.venvs / place
    if folder.is_symlink() or not folder.is_dir():
        return None
    home = generations.folder_of(root, place)
    found = generations.read(folder)
    if not found.complete:
        made = time.gmtime(folder.stat().st_mtime)
        stamp = time.strftime("%Y%m%d-%H%M%S-kept", made)
        found = Generation(stamp, folder)
        save(files, folder / generations.MARK, generations.mark_text(found))
        if not (folder / SENTINEL).exists():
            files.write(folder / SENTINEL, "")
    else:
        # the mark, not the folder's name, tells how it is called
        mark = read_json(folder / generations.MARK)
        found = dataclasses.replace(found, id=str((mark or {})["id"]))
    aside = home / found.id
    if os.path.lexists(aside) or folder.stat().st_dev != home.stat().st_dev:
        raise StepFailed(
            f"cannot keep {folder} as {aside}",
            usual="It is there already, or on another disk.",
            hint=put_aside(folder),
        )
    return dataclasses.replace(found, folder=home / found.id, complete=True)


def _plan(
    root: StateRoot,
    place: str,
    to: Generation,
    kept: Generation | None,
    previous: str | None,
) -> tuple[Journal, Placed]:
    """Return what will be written, renamed and removed, and what will be noted."""
    home = generations.folder_of(root, place)
    now = generations.placed(root, place)
    if previous is None:
        was = kept.id if kept else generations.active_id(root, place)
        previous = now.previous if was == to.id else was
    libraries: list[Pair] = []
    remove: list[Path] = []
    note = dataclasses.replace(now, previous=previous or None)
    if to.mode == "editable":
        checkout = Path(to.checkout)
        paths = [path for _, path in to.libraries]
        libraries = [Pair.beside(checkout / path) for path in paths]
        remove = [checkout / path for path in now.libraries if path not in set(paths)]
        note = Placed(note.previous, to.id, tuple(paths), now.turns)
    link = Pair.beside(root.venvs / place)
    journal = Journal(
        file=journals_of(root, place)[0],
        phase="staging",
        link=link,
        aside=kept.folder if kept else None,
        libraries=tuple(libraries),
        remove=tuple(one for one in remove if one.exists()),
        note=Pair.beside(home / generations.STATE),
        folders=tuple(missing([root.venvs, *(p.path.parent for p in libraries)])),
    )
    return journal, note


def _stage(
    journal: Journal,
    note: Placed,
    to: Generation,
    was: str,
    before: Callable[[], object] | None,
    files: Files,
) -> None:
    """Write everything beside its place, up to the journal that says "switch"."""
    try:
        journals.store(journal, files)
    except OSError as exc:
        journals.undo(journal.file, files)
        raise _refused(journal, exc) from exc
    try:
        for folder in reversed(journal.folders):
            files.mkdir(folder)
        if journal.libraries:
            _unpack(journal, to, files)
        assert journal.link and journal.note
        files.symlink(to.folder, journal.link.new)
        for folder in journal.touched():
            files.flush(folder)
        if before is not None:
            before()
        # after the last look, since it tells from when on processes run the new one
        turns = reigns.taken(note.turns, was, to.id)
        text = json.dumps(dataclasses.replace(note, turns=turns).to_json(), indent=2)
        files.write(journal.note.new, text + "\n")
        files.flush(journal.note.new.parent)
        journals.store(dataclasses.replace(journal, phase="switch"), files)
    except OSError as exc:
        journals.undo(journal.file, files)
        raise _refused(journal, exc) from exc
    except BaseException:
        journals.undo(journal.file, files)
        raise


def _refused(journal: Journal, exc: OSError) -> StepFailed:
    """Return the error for a disk that did not take what was to be written."""
    where = Path(exc.filename or journal.file)
    usual = "The disk is full, or it is read-only; nothing was changed."
    error = unwritable(where, exc, usual)
    root = journal.file.parents[2]
    if exc.errno == errno.ENOSPC and _one_disk(where.parent, root):
        error.hint += f"; what lies in {shlex.quote(str(root / 'cache'))} may go"
    return error


def _one_disk(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def _unpack(journal: Journal, to: Generation, files: Files) -> None:
    wheel = Path(to.wheel)
    if not os.path.exists(wheel):
        what = f"the wheel {wheel} of the build {to.id} is gone"
        raise StepFailed(what, hint="invoke builds")
    try:
        with zipfile.ZipFile(wheel) as archive:
            for (member, _), pair in zip(to.libraries, journal.libraries):
                files.unpack(archive, member, pair.new)
    except (KeyError, *BROKEN) as exc:
        raise StepFailed(f"cannot unpack {wheel}: {exc}", hint="build again") from exc
    # all at once: the disk writes the first ones while the last are unpacked
    for pair in journal.libraries:
        files.flush_file(pair.new)
