# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A log as blocks of whole lines, however it is stored: plain, compressed, UTF-16."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import itertools
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tools.rig.base.errors import UsageError

BLOCK = 1 << 20
"""Bytes that are looked at together."""

_STEP = 4096
"""Packed bytes that are unpacked together, and lost together where they are damaged."""

LONGEST = 4 * BLOCK
"""A longer line is passed on in pieces: one line must not fill the memory."""

_PACKED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)
_BROKEN = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)
_CONTROLS = bytes(set(range(32)) - {0, 7, 8, 9, 10, 12, 13, 27})
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
        if sys.stdin is None:
            raise UsageError(
                "standard input is closed", hint="COMMAND 2>&1 | invoke diagnose -"
            )
        yield sys.stdin.buffer
        return
    path = Path(name)
    try:
        # also a pipe, as shells make of <(COMMAND): it is read as it comes
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
    pieces = _pieces(head, stream)
    for magic, unpacker in _PACKED:
        if head.startswith(magic):
            pieces = _unpacked(pieces, unpacker)
            head = next(pieces, b"")
            pieces = itertools.chain([head], pieces)
            break
    pieces = _text_only(pieces)
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


def _pieces(head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    # what can be had of a truncated archive, or of a file on a dying disk, is read
    with contextlib.suppress(*_BROKEN):
        while piece := stream.read(BLOCK):
            yield piece


def _unpacked(pieces: Iterator[bytes], unpacker: Callable[[], Any]) -> Iterator[bytes]:
    """Unpack as far as it goes: of a log that was cut, the beginning tells enough."""
    inner, something = unpacker(), False
    for step in _steps(pieces):
        while step:
            try:
                out = inner.decompress(step)
            except _BROKEN:
                break
            if out:
                something = True
                yield out
            step = inner.unused_data if inner.eof else b""
            if inner.eof:
                # packed logs that were put behind each other are one log
                something, inner = True, unpacker()
        else:
            continue
        break
    if not something:
        raise UsageError(
            "the log is packed, and nothing of it can be unpacked",
            hint="copy it again, and compare its size with the original's",
        )


def _steps(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _STEP):
            yield piece[start : start + _STEP]


def _text_only(pieces: Iterator[bytes]) -> Iterator[bytes]:
    beginning = b""
    for piece in pieces:
        if not beginning:
            controls = len(piece) - len(piece.translate(None, _CONTROLS))
            if controls > len(piece) // 16:
                raise UsageError("this is no log but binary data", hint="file LOG")
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
