# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The log of a server: whole lines without secrets, in files that rotate."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

_LONG = 1 << 16
_SECRET_ENDS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST_SECRET = 6


class Log:
    """A file that is renamed when it is full, and never stops whoever writes.

    What a full disk does not take is counted, and the count is written when there is
    room again.
    """

    def __init__(self, path: str, most: int, kept: int) -> None:
        self.path, self.most, self.kept = path, most, kept
        self.lost = 0
        self.fd = -1
        self._renew()

    def write(self, data: bytes) -> None:
        """Append `data`, in a new file when this one would grow too large."""
        if not data:
            return
        if self.size and self.size + len(data) > self.most:
            self._renew()
        if self.lost:
            data = f"[{self.lost} bytes of output were lost]\n".encode() + data
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
            self.lost = 0
        except OSError:
            self.lost += len(rest)
        self.size += len(data) - len(rest)

    def _renew(self) -> None:
        with contextlib.suppress(OSError):
            for number in range(self.kept - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path, f"{self.path}.1")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(self.path, flags, 0o600)
            if self.fd >= 0:
                os.close(self.fd)
            self.fd = fd
        self.size = 0
        with contextlib.suppress(OSError):
            self.size = os.fstat(self.fd).st_size


class Lines:
    """Turns pieces of output into whole lines without the secrets that are known."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self.secrets = sorted(secrets, key=len, reverse=True)
        self.rest = b""

    def add(self, piece: bytes) -> bytes:
        """Return what is whole now; progress bars end with a carriage return."""
        whole = self.rest + piece
        cut = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        if len(whole) - cut > _LONG:
            cut = len(whole)
        self.rest = whole[cut:]
        return self._masked(whole[:cut])

    def flush(self) -> bytes:
        """Return what is left."""
        left, self.rest = self.rest, b""
        return self._masked(left)

    def _masked(self, text: bytes) -> bytes:
        for secret in self.secrets:
            text = text.replace(secret, b"***")
        return text


def secrets_of(env: dict[str, str], argv: list[str]) -> set[bytes]:
    """Return the values that a server may print and that must not reach its log."""
    found = {v for k, v in env.items() if k.upper().endswith(_SECRET_ENDS)}
    for at, word in enumerate(argv):
        name, sep, value = word.partition("=")
        if name.replace("_", "-") == "--api-key":
            found.update([value] if sep else argv[at + 1 : at + 2])
    return {os.fsencode(v) for v in found if len(v) >= _SHORTEST_SECRET}
