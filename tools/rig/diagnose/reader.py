# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A log as blocks of whole lines, however it is stored: plain, compressed, UTF-16."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tools.rig.base.errors import UsageError

BLOCK = 1 << 20
"""Bytes that are looked at together."""

LONGEST = 4 * BLOCK
"""A longer line is passed on in pieces: one line must not fill the memory."""

_PACKED: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ", lzma.open),
)
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)
_TAR = slice(257, 262)
_ARCHIVES = {b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd"}


@contextlib.contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """Open a log for reading; ``-`` is standard input.

    Raises
    ------
    UsageError
        It cannot be read, is a folder, or is packed in a way that is not known here.
    """
    if name == "-":
        yield sys.stdin.buffer
        return
    path = Path(name)
    try:
        # never a pipe or a device by accident: they are read as they come
        with path.open("rb") as plain:
            yield plain
    except IsADirectoryError as exc:
        raise UsageError(
            f"{name} is a folder, not a log", hint="invoke diagnose FOLDER/FILE"
        ) from exc
    except OSError as exc:
        raise UsageError(
            f"{name} cannot be read: {exc.strerror or exc}",
            hint="invoke diagnose LOG, or COMMAND 2>&1 | invoke diagnose -",
        ) from exc


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the log in pieces that end where a line ends.

    A compressed log that breaks off is read as far as it goes.

    Raises
    ------
    UsageError
        It is an archive of several files.
    """
    head = _filled(stream, 6)
    for magic, kind in _ARCHIVES.items():
        if head.startswith(magic):
            raise UsageError(
                f"the log is packed with {kind}", hint="unpack it, then diagnose it"
            )
    for magic, unpack in _PACKED:
        if head.startswith(magic):
            with unpack(_Prefixed(head, stream)) as inner:
                yield from blocks(inner)
            return
    pieces = _no_tar(_pieces(head, stream))
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        pieces = _to_utf8(pieces)
    yield from _whole_lines(pieces)


def _filled(stream: IO[bytes], size: int) -> bytes:
    """Read the first bytes; a pipe may give fewer than asked for at a time."""
    head = b""
    with contextlib.suppress(*_BROKEN):
        while len(head) < size and (more := stream.read(size - len(head))):
            head += more
    return head


class _Prefixed:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self.head, self.stream = head, stream

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, the first ones first."""
        if self.head:
            size = len(self.head) if size < 0 else size
            out, self.head = self.head[:size], self.head[size:]
            return out
        return self.stream.read(size)

    def seekable(self) -> bool:
        """Say that there is no way back."""
        return False

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    @property
    def closed(self) -> bool:
        """Whether the stream below is closed."""
        return self.stream.closed


def _pieces(head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    # what can be had of a truncated archive, or of a file on a dying disk, is read
    with contextlib.suppress(*_BROKEN):
        while piece := stream.read(BLOCK):
            yield piece


def _no_tar(pieces: Iterator[bytes]) -> Iterator[bytes]:
    beginning = b""
    for piece in pieces:
        beginning += piece[: _TAR.stop - len(beginning)]
        if beginning[_TAR] == b"ustar":
            raise UsageError(
                "the log is packed with tar", hint="unpack it, then diagnose it"
            )
        yield piece


def _to_utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    held = 0
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, piece[:cut]])
            rest, held = [], 0
        rest.append(piece[cut:])
        held += len(piece) - cut
        if held > LONGEST:
            yield b"".join(rest)
            rest, held = [], 0
    if any(rest):
        yield b"".join(rest)
