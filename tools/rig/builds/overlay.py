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
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.rig.base.errors import StepFailed
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
        When the checkout cannot be written; nothing is changed then.
    """
    pairs = []
    for member in members:
        final = checkout / _where(member, moved)
        pairs.append((final.with_name(f".{final.name}{_NEW}"), final, member))
    plain = [[str(new), str(final)] for new, final, _ in pairs]
    write_json(journal, {"phase": "staging", "pairs": plain})
    try:
        with zipfile.ZipFile(wheel) as archive:
            for new, _, member in pairs:
                new.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, new.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                    sink.flush()
                    os.fsync(sink.fileno())
                mode = archive.getinfo(member).external_attr >> 16
                new.chmod(mode & 0o777 or 0o644)
    except OSError as exc:
        settle(journal)
        raise StepFailed(
            f"cannot write into {checkout}: {exc.strerror}",
            usual="The disk of the checkout is full, or it is read-only.",
            hint=f"df -h '{checkout}'",
        ) from exc
    write_json(journal, {"phase": "switch", "pairs": plain})
    settle(journal)
    return [final for _, final, _ in pairs]


def settle(journal: Path) -> str:
    """Finish or undo what an earlier command left, and say which; empty for nothing.

    Before the journal says "switch" nothing in force was touched, so the new files are
    taken away. After it, every rename that is missing is made.
    """
    state = read_json(journal)
    if not state:
        return ""
    finish = state["phase"] == "switch"
    for new, final in state["pairs"]:
        with contextlib.suppress(FileNotFoundError):
            if finish:
                os.replace(new, final)
            else:
                os.unlink(new)
    journal.unlink()
    return "finished" if finish else "undone"


def put_on_path(site: Path, project: str, folders: Sequence[Path]) -> None:
    """Name folders of the checkout in a ``.pth`` file, beside the target's own finder."""
    if folders:
        name = f"rig-overlay-{project}.pth"
        write_text(site / name, "".join(f"{folder}\n" for folder in folders))


def _where(member: str, moved: Mapping[str, str]) -> str:
    for start, other in moved.items():
        if member.startswith(start):
            return other + member[len(start) :]
    return member
