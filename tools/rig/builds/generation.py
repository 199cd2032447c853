# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One generation: an environment at its final path, and the mark that describes it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed
from tools.rig.base.state import read_json
from tools.rig.guard import lease

MARK = "rig-generation.json"
"""A folder with this file in it is complete."""

NOTE = ".making.json"
"""End of the name of the note that says who is making one."""

_WORDS = (
    "id",
    "mode",
    "wheel",
    "version",
    "commit",
    "profile",
    "toolkit",
    "made",
    "checkout",
    "head",
)


@dataclass(frozen=True)
class Generation:
    """One environment.

    ``mode`` is ``wheel`` or ``editable``; ``wheel`` the kept wheel's path; ``made`` UTC
    as in records; ``head`` the checkout's commit in full, or empty. ``libraries`` are
    the members of an editable one's wheel that go into the checkout, each with its path
    there. ``total_bytes`` is what it takes, ``own_bytes`` what removing it would free:
    files that the cache links to stay. Both are None where not measured. ``live`` says
    that someone is still making it, ``problem`` why its mark cannot be read.
    """

    id: str
    folder: Path
    mode: str = ""
    wheel: str = ""
    version: str = ""
    commit: str = ""
    profile: str = ""
    toolkit: str = ""
    made: str = ""
    verified: bool = False
    bytes: int = 0
    checkout: str = ""
    head: str = ""
    libraries: tuple[tuple[str, str], ...] = ()
    complete: bool = False
    active: bool = False
    previous: bool = False
    live: bool = False
    own_bytes: int | None = None
    total_bytes: int | None = None
    problem: str = ""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def to_json(self) -> dict[str, Any]:
        """Return what ``builds --json`` shows."""
        return {**asdict(self), "folder": str(self.folder)}


def read(folder: Path) -> Generation:
    """Return the generation in a folder, as its mark tells it, without sizes."""
    found = Generation(folder.name, folder)
    try:
        data = read_json(folder / MARK)
        if data is None:
            return replace(found, live=_live(folder))
        words: dict[str, Any] = {word: str(data.get(word) or "") for word in _WORDS}
        words["id"] = folder.name
        return replace(
            Generation(**words, folder=folder),
            complete=True,
            verified=bool(data.get("verified")),
            bytes=int(data.get("bytes") or 0),
            libraries=tuple((str(m), str(p)) for m, p in data.get("libraries") or ()),
        )
    except StepFailed as exc:
        return replace(found, problem=exc.what)
    except (AttributeError, TypeError, ValueError) as exc:
        return replace(found, problem=f"{folder / MARK} is no mark: {exc}")


def mark_text(one: Generation) -> str:
    """Return the mark of a generation."""
    keys = (*_WORDS, "verified", "bytes", "libraries")
    data = {key: getattr(one, key) for key in keys}
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def note_of(folder: Path) -> Path:
    """Return where the note lies that says who is making a generation."""
    return folder.with_name(f".{folder.name}{NOTE}")


def sizes(folder: Path, deadline: float | None) -> tuple[int, int] | None:
    """Return the bytes that removing would free, and all; None when time is up."""
    own = total = 0
    seen: set[tuple[int, int]] = set()
    stack = [os.fspath(folder)]
    while stack:
        if deadline is not None and time.monotonic() >= deadline:
            return None
        with contextlib.suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                    continue
                info = entry.stat(follow_symlinks=False)
                held = info.st_blocks * 512
                if info.st_nlink == 1:
                    own += held
                elif (info.st_dev, info.st_ino) in seen:
                    continue
                seen.add((info.st_dev, info.st_ino))
                total += held
    return own, total


def _live(folder: Path) -> bool:
    """Say whether someone may still be making it."""
    try:
        text = note_of(folder).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    holder = lease.parsed(text)
    return holder is not None and not holder.gone
