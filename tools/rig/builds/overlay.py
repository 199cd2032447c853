# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Puts the files that a build made into the checkout, all or none.

An editable install imports its Python files from the checkout, so the built libraries
must lie there. They are written beside their places and renamed: a process that has the
old library mapped keeps the old inode. A journal in the state folder tells the next
command to finish or undo what an interruption left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed, unwritable
from tools.rig.base.state import read_json, write_json, write_text

_NEW = ".rig-new"


def place(
    wheel: Path,
    members: Sequence[str],
    checkout: Path,
    journal: Path,
    moved: Mapping[str, str],
) -> list[Path]:
    """Take `members` out of a wheel and put them into the checkout.

    Parameters
    ----------
    wheel
        The built wheel.
    members
        Its files that the build made.
    checkout
        The source tree.
    journal
        A file of ours, on the local disk.
    moved
        Folders whose place in the checkout is another than in the wheel.

    Returns
    -------
    list of Path
        The files in place.

    Raises
    ------
    StepFailed
        When the wheel is broken, or the checkout cannot be written: before the first
        rename nothing is changed, after it the next :func:`settle` goes on.
    """
    settle(journal)
    pairs = []
    for member in members:
        final = checkout / _where(member, moved)
        if ".." in final.parts:
            raise StepFailed(
                f"{wheel.name} holds {member}, which leads out of its tree"
            )
        pairs.append((final.with_name(f".{final.name}{_NEW}"), final, member))
    state = {
        "phase": "staging",
        "pairs": [[str(new), str(final)] for new, final, _ in pairs],
        "folders": _missing(final.parent for _, final, _ in pairs),
    }
    write_json(journal, state)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for new, _, member in pairs:
                _stage(archive, member, new)
        write_json(journal, {**state, "phase": "switch"})
    except (KeyError, zipfile.BadZipFile, zlib.error) as exc:
        settle(journal)
        raise StepFailed(f"cannot unpack {wheel}: {exc}", hint="build again") from exc
    except OSError as exc:
        settle(journal)
        usual = "The disk of the checkout is full, or it is read-only."
        raise unwritable(checkout / "*", exc, usual) from exc
    except BaseException:
        settle(journal)
        raise
    settle(journal)
    return [final for _, final, _ in pairs]


def settle(journal: Path) -> str:
    """Finish or undo what an earlier command left, and say which; empty for nothing.

    Before the journal says "switch" nothing in force was touched, so the new files are
    taken away. After it, every rename that is missing is made.

    Raises
    ------
    StepFailed
        When the journal cannot be read, or a file cannot be renamed or removed; the
        journal stays, so that the next command tries again.
    """
    state = read_json(journal)
    if not state:
        return ""
    try:
        finish = state["phase"] == "switch"
        pairs = [(str(new), str(final)) for new, final in state["pairs"]]
        folders = [str(folder) for folder in state.get("folders", ())]
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise StepFailed(
            f"{journal} is no journal of placed files",
            usual="It was edited by hand, or by another version of this suite.",
            hint=f"mv '{journal}' '{journal}.broken'",
        ) from exc
    try:
        for new, final in pairs:
            # asked first: a read-only disk refuses even what has nothing to do
            if not os.path.lexists(new):
                continue
            if finish:
                os.replace(new, final)
            else:
                os.unlink(new)
        for folder in [] if finish else folders:
            # deepest first; one that holds something by now is not ours any more
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        _flush({os.path.dirname(final) for _, final in pairs})
        journal.unlink()
    except OSError as exc:
        what = "finish placing" if finish else "take back"
        raise StepFailed(
            f"cannot {what} {exc.filename}: {exc.strerror}",
            usual="The disk of the checkout is read-only or away; what is missing is "
            "done by the next command.",
            hint="make it writable, then run the command again",
        ) from exc
    return "finished" if finish else "undone"


def libraries(
    members: Sequence[str], moved: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return each member of a wheel with its path in the checkout.

    Parameters
    ----------
    members
        The files of the wheel that the build made.
    moved
        Folders whose place in the checkout is another than in the wheel.
    """
    return tuple((member, _where(member, moved)) for member in members)


def put_on_path(site: Path, project: str, folders: Sequence[Path]) -> None:
    """Name folders of the checkout in a ``.pth`` file, beside the target's finder.

    Without folders an earlier file is taken away.
    """
    file = site / f"rig-overlay-{project}.pth"
    if folders:
        write_text(file, "".join(f"{folder}\n" for folder in folders))
    else:
        file.unlink(missing_ok=True)


def _stage(archive: zipfile.ZipFile, member: str, new: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, new.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
        sink.flush()
        os.fsync(sink.fileno())
    mode = archive.getinfo(member).external_attr >> 16
    new.chmod(mode & 0o777 or 0o644)


def _missing(folders: Iterable[Path]) -> list[str]:
    """Return the folders that staging will make, the deepest first."""
    found: dict[str, Any] = {}
    for folder in folders:
        for one in (folder, *folder.parents):
            if one.exists():
                break
            found[str(one)] = None
    return sorted(found, key=len, reverse=True)


def _flush(folders: Iterable[str]) -> None:
    """Make renames outlast a power cut before the journal that knows them goes."""
    for folder in folders:
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _where(member: str, moved: Mapping[str, str]) -> str:
    for start, other in moved.items():
        if member.startswith(start):
            return other + member[len(start) :]
    return member
