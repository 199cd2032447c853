# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A log is read however it is stored, and never held in memory as a whole."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.rig.base.errors import ExitCode, UsageError
from tools.rig.diagnose.reader import BLOCK, LONGEST, blocks, opened

TEXT = "".join(f"line {n} ü\n" for n in range(50_000)).encode() * 3


def plain(data: bytes) -> bytes:
    """Return it as it is."""
    return data


class Dripping(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        """Return at most 3 bytes at first, then what is asked for."""
        return super().read(min(size or 3, 3) if self.tell() < 100 else size)


@pytest.mark.parametrize("pack", [plain, gzip.compress, bz2.compress, lzma.compress])
def test_packed(pack: Callable[[bytes], bytes]) -> None:
    """Compressed logs are known by their content, not by their name."""
    pieces = list(blocks(Dripping(pack(TEXT))))
    assert b"".join(pieces) == TEXT
    assert len(pieces) > 1
    assert all(piece.endswith(b"\n") for piece in pieces)


def test_truncated_gzip() -> None:
    """Of a compressed log that breaks off, what is there is read."""
    whole = gzip.compress(TEXT)
    got = b"".join(blocks(io.BytesIO(whole[: len(whole) // 2])))
    assert got and TEXT.startswith(got)
    with pytest.raises(UsageError, match="nothing of it can be unpacked"):
        list(blocks(io.BytesIO(whole[:8])))
    assert b"".join(blocks(io.BytesIO(gzip.compress(b"")))) == b""


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_small_and_damaged(pack: Callable[[bytes], bytes]) -> None:
    """A short log that was cut, or has something behind it, is read all the same."""
    log = b"nvcc fatal   : Unsupported gpu architecture 'compute_70'\n" * 40
    whole = pack(log)
    assert b"".join(blocks(io.BytesIO(whole + b"\n"))) == log
    assert b"".join(blocks(io.BytesIO(whole + whole))) == log + log
    if pack is not bz2.compress:
        # bzip2 unpacks whole blocks of 900 kB only
        assert log.startswith(b"".join(blocks(io.BytesIO(whole[:-4]))) or b"?")


def test_binary() -> None:
    """What is no text is refused instead of being called healthy."""
    with pytest.raises(UsageError, match="binary"):
        list(blocks(io.BytesIO(bytes(range(256)) * 500)))


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_utf16(coding: str) -> None:
    """Windows' shells write UTF-16 with a mark."""
    mark = b"\xff\xfe" if coding.endswith("le") else b"\xfe\xff"
    data = mark + "error: schön\r\nb\n".encode(coding)
    assert b"".join(blocks(io.BytesIO(data))).decode() == "error: schön\r\nb\n"


def test_endless_line() -> None:
    """A line that never ends comes in pieces."""
    pieces = list(blocks(io.BytesIO(b"x" * (2 * LONGEST))))
    assert sum(map(len, pieces)) == 2 * LONGEST
    assert max(map(len, pieces)) <= LONGEST + BLOCK


@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\nb"])
def test_small(data: bytes) -> None:
    """Nothing is lost and nothing added."""
    assert b"".join(blocks(io.BytesIO(data))) == data


@pytest.mark.parametrize("magic", [b"PK\x03\x04....", b"(\xb5/\xfd...."])
def test_archives(magic: bytes) -> None:
    """An archive is named instead of being read as text."""
    with pytest.raises(UsageError, match="packed with"):
        list(blocks(io.BytesIO(magic)))


def test_tar(tmp_path: Path) -> None:
    """A folder in one file is no log either, compressed or not."""
    file = tmp_path / "a.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(__file__, "x.txt")
    with opened(str(file)) as stream, pytest.raises(UsageError, match="tar"):
        list(blocks(stream))


class TestOpened:
    """Files by name, and standard input."""

    def test_file(self, tmp_path: Path) -> None:
        """A file is read as bytes."""
        file = tmp_path / "ein log ü.txt"
        file.write_bytes(b"x\n")
        with opened(str(file)) as stream:
            assert stream.read() == b"x\n"

    def test_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A dash is standard input, which stays open."""
        given = io.TextIOWrapper(io.BytesIO(b"y\n"))
        monkeypatch.setattr(sys, "stdin", given)
        with opened("-") as stream:
            assert stream.read() == b"y\n"
        assert not given.closed

    def test_closed_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where standard input is closed, that is said."""
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(UsageError, match="is closed"), opened("-"):
            pass

    def test_unreadable(self, tmp_path: Path) -> None:
        """What cannot be read is wrong usage, with what to type instead."""
        with (
            pytest.raises(UsageError, match="is a folder") as caught,
            opened(str(tmp_path)),
        ):
            pass
        assert caught.value.code == ExitCode.USAGE
        with (
            pytest.raises(UsageError, match="No such file"),
            opened(str(tmp_path / "no")),
        ):
            pass
