# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Temporary folders that go again, also those of a run that was killed.

Whoever works in one holds the kernel's lock on it, which is free the moment its holder
dies. So the next one tells what was left from what is in use, in other containers too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SPARED_S = 60.0
"""Seconds that a folder without a lock is left alone: it may have just been made."""


@contextlib.contextmanager
def folder(name: str, place: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Give an empty folder, and take away what killed runs left of that name.

    Parameters
    ----------
    name
        What it is for: the folder is called ``rig-NAME-...``.
    place
        Where it lies; the place for temporary files when None.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    where = Path(tempfile.gettempdir() if place is None else place)
    start = f"rig-{name}-"
    _sweep(where, start)
    # what does not go goes the next time: no result is lost for it
    with (
        tempfile.TemporaryDirectory(
            prefix=start, dir=where, ignore_cleanup_errors=True
        ) as made,
        _held(made),
    ):
        yield Path(made)


@contextlib.contextmanager
def _held(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock of a folder; say whether we have it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        got = False
        # a file system without locks: then nothing there is ever swept
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            got = True
        yield got
    finally:
        os.close(fd)


def _sweep(where: Path, start: str) -> None:
    """Remove what is ours, old enough, and held by nobody."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(start):
                # one that does not go now goes the next time
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
                    if ours and now - facts.st_mtime > SPARED_S:
                        _remove(entry.path)


def _remove(path: str) -> None:
    with _held(path) as free:
        if free:
            shutil.rmtree(path, ignore_errors=True)
