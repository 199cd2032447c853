# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-logs``: the end of a server's log, and what comes after it."""

from __future__ import annotations

import collections
import contextlib
import sys
from pathlib import Path
from typing import TextIO

from tools.rig.base import reader, redact, regular_file
from tools.rig.base.errors import StepFailed, UsageError, quoted
from tools.rig.base.state import StateRoot
from tools.rig.serve import members
from tools.rig.serve import record as records
from tools.rig.serve.loading import Follower
from tools.rig.serve.record import ServerRecord
from tools.rig.steps.serve_stop import pick

LINES = 100
"""Lines of the end that are shown."""

_LOOK_S = 0.25


def serve_logs(
    root: StateRoot,
    name: str = "",
    *,
    follow: bool = False,
    lines: int = LINES,
    out: TextIO | None = None,
) -> None:
    """Print the end of a log; follow it across rotations until the server ends.

    A reader that leaves ends it too. The log of a server that is gone is there as well.

    Parameters
    ----------
    follow
        Go on until the server ends, or Ctrl-C.
    lines
        How many of the end.
    out
        Where to; standard output when None.

    Raises
    ------
    UsageError
        When it is not clear which one.
    StepFailed
        When there is no log, or it cannot be read.
    """
    sink = sys.stdout if out is None else out
    record, log = _find(root, name)
    follower = Follower(log)
    kept: collections.deque[str] = collections.deque(maxlen=max(0, lines))
    while new := follower.lines():
        kept.extend(new)
    if not kept:
        _must_open(log)
    # a pipe whose reader has seen enough is the end, and no fault
    with contextlib.suppress(BrokenPipeError):
        _write(sink, kept)
        while follow and record is not None:
            there = members.of(record)
            _write(sink, follower.lines())
            if not there or not reader.stays(sink, _LOOK_S):
                return


def _find(root: StateRoot, name: str) -> tuple[ServerRecord | None, Path]:
    try:
        record = pick(root, name)
        return record, Path(record.log)
    except (StepFailed, UsageError):
        # a record that is broken, or gone, takes no log with it
        log = records.path_of(root, name).with_suffix(".log") if name else None
        if log is None or not log.is_file():
            raise
        return None, log


def _must_open(log: Path) -> None:
    """Tell a log with nothing in it from one that is not there, or is closed to us."""
    try:
        regular_file.opened(log).close()
    except FileNotFoundError as exc:
        hint = "invoke serve-status"
        raise StepFailed(f"there is no log {log}", hint=hint) from exc
    except OSError as exc:
        raise StepFailed(
            f"cannot read {log}: {exc.strerror}", hint=f"ls -l {quoted(log)}"
        ) from exc


def _write(sink: TextIO, lines: collections.deque[str] | list[str]) -> None:
    for line in lines:
        sink.write(redact.text(line) + "\n")
    sink.flush()
