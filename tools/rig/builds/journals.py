# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The journal of a switch: what lies beside its place, and where it goes.

It is written before the first file and removed after the last one, so whatever a killed
command left is known. Reading it twice does no harm: each step looks first whether it
has been done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import StepFailed, put_aside
from tools.rig.base.state import read_json
from tools.rig.builds.files import Files, save

NEW = "rig-new"


@dataclass(frozen=True)
class Pair:
    """A file that is written as ``new`` and gets the name ``path``."""

    new: Path
    path: Path

    @classmethod
    def beside(cls, path: Path) -> Pair:
        """Return the pair of a path: hidden beside it, so in one file system."""
        return cls(path.with_name(f".{path.name}.{NEW}"), path)


@dataclass(frozen=True)
class Journal:
    """All that is left to do or to undo.

    ``link`` is the name of the active environment, ``aside`` where a folder of that
    name goes; ``note`` is the state beside the generations; ``folders`` were made for
    the libraries, the deepest first.
    """

    file: Path
    phase: str
    libraries: tuple[Pair, ...] = ()
    folders: tuple[Path, ...] = ()
    remove: tuple[Path, ...] = ()
    link: Pair | None = None
    aside: Path | None = None
    note: Pair | None = None

    def touched(self) -> list[Path]:
        """Return the folders in which names change; `aside` lies beside the journal."""
        paths = [self.file]
        paths += [pair.path for pair in self.pairs()]
        paths += [*self.remove, *self.folders]
        paths += [self.link.path] if self.link else []
        return list(dict.fromkeys(path.parent for path in paths))

    def pairs(self) -> tuple[Pair, ...]:
        """Return what is renamed, the note last."""
        return (*self.libraries, *([self.note] if self.note else []))


def store(journal: Journal, files: Files) -> None:
    """Write the journal.

    Raises
    ------
    OSError
        When it cannot be written; the one that was there stays.
    """
    both = [[str(p.new), str(p.path)] for p in journal.libraries]
    data = {
        "phase": journal.phase,
        "pairs": both,
        "folders": [str(folder) for folder in journal.folders],
        "remove": [str(path) for path in journal.remove],
        "link": [str(journal.link.new), str(journal.link.path)] if journal.link else [],
        "note": [str(journal.note.new), str(journal.note.path)] if journal.note else [],
        "aside": str(journal.aside) if journal.aside else "",
    }
    save(files, journal.file, json.dumps(data, indent=2, sort_keys=True) + "\n")


def load(file: Path) -> Journal | None:
    """Return the journal in a file, that of an earlier version too; None for none.

    Raises
    ------
    StepFailed
        When the file is something else; it is left alone.
    """
    data = read_json(file)
    if data is None:
        return None
    try:
        return Journal(
            file=file,
            phase=str(data["phase"]),
            libraries=tuple(Pair(Path(n), Path(p)) for n, p in data["pairs"]),
            folders=tuple(Path(f) for f in data.get("folders", ())),
            remove=tuple(Path(f) for f in data.get("remove", ())),
            link=_pair(data.get("link")),
            aside=Path(data["aside"]) if data.get("aside") else None,
            note=_pair(data.get("note")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise StepFailed(
            f"{file} is no journal of placed files",
            usual="It was edited by hand, or by another version of this suite.",
            hint=put_aside(file, ".broken"),
        ) from exc


def settle(file: Path, files: Files) -> str:
    """Finish or undo what the journal in `file` says: ``finished`` or ``undone``.

    A first rename that is refused undoes the whole: nothing in force was touched.

    Returns
    -------
    str
        Empty when there is no journal.

    Raises
    ------
    StepFailed
        When a file cannot be renamed or removed; the journal stays, except where the
        whole was undone.
    """
    journal = load(file)
    if journal is None:
        return ""
    finish = journal.phase == "switch"
    try:
        # whoever wrote it may have died before it was flushed
        files.flush(file.parent)
        if finish:
            _finish(journal, files)
        else:
            _take_back(journal, files)
    except OSError as exc:
        what = "finish placing" if finish else "take back"
        usual = "What is missing is done by the next command."
        if finish and _untouched(journal) and undo(file, files):
            usual = "Nothing was changed."
        why, hint = "Its disk is full, read-only or away.", "make it writable, then run"
        if exc.errno == errno.EXDEV and journal.link:
            # overlay: a folder of the image below cannot be renamed, only copied
            why = "It comes with the container's image and cannot be renamed."
            hint = f"{put_aside(journal.link.path)}, then run"
        raise StepFailed(
            f"cannot {what} {exc.filename}: {exc.strerror}",
            usual=f"{why} {usual}",
            hint=f"{hint} the command again",
        ) from exc
    return "finished" if finish else "undone"


def undo(file: Path, files: Files) -> bool:
    """Take back what was staged, before any rename; False leaves it to the next one."""
    try:
        journal = load(file)
        if journal is None:
            return True
        if journal.phase != "staging":
            journal = dataclasses.replace(journal, phase="staging")
            store(journal, files)
        _take_back(journal, files)
    except (OSError, StepFailed):
        return False
    return True


def _finish(journal: Journal, files: Files) -> None:
    if journal.link:
        _link(journal.link, journal.aside, files)
    for pair in journal.pairs():
        # asked first: a read-only disk refuses even what has nothing to do
        if os.path.lexists(pair.new):
            files.rename(pair.new, pair.path)
    for path in journal.remove:
        if os.path.lexists(path):
            files.unlink(path)
    _end(journal, files)


def _link(link: Pair, aside: Path | None, files: Files) -> None:
    """Put the link in place; a folder that has its name goes aside."""
    if aside and _is_folder(link.path):
        if not files.exchange(link.new, link.path):
            files.rename(link.path, aside)
        # the next rename speaks of a name that this one has changed
        files.flush(link.path.parent)
    if aside and _is_folder(link.new):
        files.rename(link.new, aside)
    elif os.path.lexists(link.new):
        files.rename(link.new, link.path)


def _take_back(journal: Journal, files: Files) -> None:
    staged = [pair.new for pair in journal.pairs()]
    staged += [journal.link.new] if journal.link else []
    for new in staged:
        if os.path.lexists(new):
            files.unlink(new)
    for folder in journal.folders:
        # one that holds something by now is not ours any more
        with contextlib.suppress(OSError):
            files.rmdir(folder)
    _end(journal, files)


def _end(journal: Journal, files: Files) -> None:
    """Let the journal go, once everything outlasts a power cut without it."""
    for folder in journal.touched():
        if folder.is_dir():
            files.flush(folder)
    files.unlink(journal.file)
    files.flush(journal.file.parent)


def _untouched(journal: Journal) -> bool:
    """Say whether no rename was made yet."""
    whole = all(os.path.lexists(pair.new) for pair in journal.pairs())
    if journal.link is None:
        return whole
    return (
        whole and journal.link.new.is_symlink() and os.path.lexists(journal.link.path)
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _pair(both: list[str] | None) -> Pair | None:
    if not both:
        return None
    new, path = both
    return Pair(Path(new), Path(path))
