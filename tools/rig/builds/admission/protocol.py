# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the admission service of a user is found, and how it is asked for its state."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rig.base.errors import CannotError
from tools.rig.base.launch_line import SOCKET

VERSION = 1
"""Stands in the folder's name: services that speak differently do not meet."""

LOCK = "service.lock"
"""Whoever holds it serves."""

_ASK_S = 2.0
_MOST = 1 << 24


def folder(env: Mapping[str, str] | None = None, temp: Path = Path("/tmp")) -> Path:
    """Return this user's folder for the socket, made where it is missing.

    The path of a socket has at most 107 bytes, so it does not lie below the state root.
    It is the same for every build of a user, with or without a login session; the
    session's folder is the second choice, where the first belongs to somebody else.

    Raises
    ------
    CannotError
        When neither can be had.
    """
    env = os.environ if env is None else env
    name = f"1cat-rig-{os.geteuid()}"
    places = [temp / name]
    if session := env.get("XDG_RUNTIME_DIR"):
        places.append(Path(session) / name)
    for place in places:
        if _private(place):
            found = place / f"admission-{VERSION}"
            if _private(found) and len(os.fsencode(found)) < 90:
                return found
    raise CannotError(
        f"cannot make a private folder {places[0]} for the admission of compiles",
        usual="It belongs to another user, or is open to others.",
        hint=f"ls -ld {places[0]}",
    )


def status(place: Path, timeout: float = _ASK_S) -> dict[str, Any] | None:
    """Return what the service in a folder says of itself; None when nobody answers.

    The figures are bytes and seconds: ``budget``, ``used`` (measured now), ``reserved``
    (the most that what runs will hold), ``lowered``, ``psi``, ``cap``, ``cores``,
    ``done``, ``hits``, and what is ``running`` and ``waiting``.
    """
    with (
        contextlib.suppress(OSError, ValueError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock,
    ):
        sock.settimeout(timeout)
        sock.connect(os.fspath(place / SOCKET))
        sock.sendall(b'{"op": "status"}\n')
        text = b""
        while not text.endswith(b"\n") and len(text) < _MOST:
            part = sock.recv(1 << 16)
            if not part:
                return None
            text += part
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None


def parsed(line: bytes) -> dict[str, Any]:
    """Return a message; empty when it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _private(place: Path) -> bool:
    """Make a folder, and say whether it is ours alone."""
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        mode = place.lstat()
        if stat.S_ISDIR(mode.st_mode) and mode.st_uid == os.geteuid():
            if mode.st_mode & 0o077:
                place.chmod(0o700)
            return True
    return False
