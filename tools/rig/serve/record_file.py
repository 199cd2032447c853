# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The files that tell of servers: read with distrust, changed by one at a time.

Whoever may write into the folder can have put anything there, and one odd file must
neither hold up nor end the look at all the other servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.rig.base import regular_file
from tools.rig.base.errors import StepFailed, put_aside, quoted

PATIENCE_S = 2.0
"""Seconds that another one may take to change a file of the folder."""

_BIGGEST = 1 << 63


def read(file: Path) -> Any | None:
    """Return what a file holds as JSON, or None when there is none.

    Raises
    ------
    StepFailed
        When it is no regular file, far too big, or no JSON; it is left alone.
    """
    try:
        data = regular_file.read(file)
        return json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StepFailed(
            f"cannot read {file}: {exc.strerror}", hint=f"ls -ld {quoted(file)}"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise StepFailed(
            f"cannot read {file}: {exc}", hint=put_aside(file, ".broken")
        ) from exc


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one at a time compare and change the files of a folder.

    The folder itself is locked, so that no file of anybody's is needed for it. Who
    stands still with the lock holds up the others only for a moment.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # nothing can be changed in it either, and that is told by who tries
        yield
        return
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _locked(fd) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def fits(value: object, kind: Any) -> bool:
    """Say whether a value of a JSON file is what an annotation says, all the way down.

    Numbers that no clock and no counter can show fit nowhere.
    """
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if origin is tuple:
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(inner)
            and all(fits(one, its) for one, its in zip(value, inner))
        )
    if origin is dict:
        return isinstance(value, Mapping) and all(
            fits(key, inner[0]) and fits(one, inner[1]) for key, one in value.items()
        )
    if kind is str:
        return isinstance(value, str) and "\0" not in value
    # True is a number only for Python
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if isinstance(value, float) and (kind is not float or not math.isfinite(value)):
        return False
    return abs(value) < _BIGGEST


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # a file system without locks
        return True
    return True


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")
