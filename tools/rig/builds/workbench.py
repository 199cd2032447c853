# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where a toolkit or compiler is put together before it is moved to its place.

One run works at a time, so a second one that wants the same waits and then finds it
made. What a killed run left is known by its name and sentinel, and taken away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tools.rig.base.errors import InUseError, StepFailed, put_aside, unwritable
from tools.rig.base.run import run
from tools.rig.base.state import SENTINEL, remove_made

WAIT_S = 3600.0
"""Seconds to wait for another run that is bringing something into the same folder."""


@contextlib.contextmanager
def workbench(toolkits: Path, name: str, *, wait_s: float = WAIT_S) -> Iterator[Path]:
    """Give an empty folder to put `name` together in, and take it away afterwards.

    Parameters
    ----------
    toolkits
        The state root's folder for toolkits; made when missing.
    name
        What is made, like ``cuda-12.4``.
    wait_s
        Seconds to wait for another run.

    Raises
    ------
    InUseError
        When another run is still at work after `wait_s`.
    StepFailed
        When the disk is full or the folder may not be written.
    """
    try:
        toolkits.mkdir(parents=True, exist_ok=True)
        with FileLock(toolkits / ".lock", timeout=wait_s):
            _clean(toolkits, name)
            work = toolkits / f".{name}.{os.getpid()}"
            work.mkdir()
            (work / SENTINEL).touch()
            try:
                yield work
            finally:
                remove_made(work)
    except Timeout:
        raise InUseError(
            f"another run has been working in {toolkits} for {wait_s:.0f} s",
            usual="It is bringing a toolkit or a compiler over a slow network.",
            hint="wait for it to end, then run the command again",
        ) from None
    except OSError as exc:
        usual = "The disk is full, or the folder may not be written."
        raise unwritable(toolkits / name, exc, usual) from exc


def publish(made: Path, final: Path) -> None:
    """Move a finished folder to its place, marked as ours and flushed to the disk.

    Raises
    ------
    StepFailed
        When something that is not ours lies there.
    """
    refuse_foreign(final)
    (made / SENTINEL).touch()
    # the rename must not reach the disk before the files do
    run(["sync", "-f", made])
    os.rename(made, final)


def refuse_foreign(final: Path) -> None:
    """Raise StepFailed when something that we did not make lies at `final`."""
    if os.path.lexists(final) and not (final / SENTINEL).is_file():
        raise StepFailed(
            f"{final} is in the way: this suite did not make it",
            hint=put_aside(final),
        )


def _clean(toolkits: Path, name: str) -> None:
    """Take away what killed runs left; the lock is held, so none of it is in use."""
    for left in toolkits.glob(f".{name}.*"):
        if (left / SENTINEL).is_file():
            remove_made(left)
        else:
            # killed between making the folder and marking it: it is empty then
            with contextlib.suppress(OSError):
                left.rmdir()
