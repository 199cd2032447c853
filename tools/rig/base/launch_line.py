# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The launcher's line to the admission service: one JSON object a line, words back.

JSON is written by hand, and the socket is the bare one: ``json`` and ``socket`` would
double the time that the launcher takes to start (10 ms with neither, 19 with the first,
28 with the second, measured).
"""

from __future__ import annotations

import _socket
import os
import select

SOCKET = "service.sock"

MOST = 1 << 16
"""Bytes that are read at once."""


class Line:
    """A connection that may break at any time, and is then made anew.

    Parameters
    ----------
    folder
        Where the service has its socket.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._sock: _socket.socket | None = None
        self._rest = b""

    @property
    def there(self) -> bool:
        """Whether the service was there when we last looked."""
        return self._sock is not None

    def fileno(self) -> int:
        """Return the descriptor to wait on, -1 without a connection."""
        return -1 if self._sock is None else self._sock.fileno()

    def connect(self) -> bool:
        """Try once to reach the service, and say whether that worked."""
        self.close()
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            # many launchers at once fill the queue for a moment; not for long
            sock.settimeout(0.5)
            sock.connect(os.path.join(self.folder, SOCKET))
            # a service that hangs must not hold us: what it does not read is dropped
            sock.settimeout(0.0)
        except OSError:
            sock.close()
            return False
        self._sock = sock
        return True

    def say(self, **fields: object) -> bool:
        """Send one object; a service that is gone or full does not hear it."""
        if self._sock is None:
            return False
        try:
            self._sock.send(dumps(fields).encode("ascii") + b"\n")
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True

    def hear(self, seconds: float) -> list[str]:
        """Return the lines that came within `seconds`, at once when there are any."""
        if self._sock is None:
            return []
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return []
        try:
            got = self._sock.recv(MOST)
        except BlockingIOError:
            return []
        except OSError:
            got = b""
        if not got:
            self.close()
            return []
        *whole, self._rest = (self._rest + got).split(b"\n")
        return [line.decode("ascii", "replace") for line in whole]

    def close(self) -> None:
        """Hang up."""
        if self._sock is not None:
            self._sock.close()
        self._sock, self._rest = None, b""


def dumps(value: object) -> str:
    """Return `value` (plain data) as JSON in ASCII."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(round(value, 4))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        pairs = (f"{_text(str(key))}: {dumps(one)}" for key, one in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    return '"' + "".join(map(_letter, text)) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter <= "~":
        return letter
    # a name that is no UTF-8 keeps its bytes as lone surrogates
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
