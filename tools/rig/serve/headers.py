# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What one safetensors file holds, from its first bytes alone.

The format: eight bytes with the length of the header (little endian), the header as
JSON (name -> dtype, shape, data_offsets), then the data without gaps.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.regular_file import opened
from tools.rig.serve.foreign import shown

LARGEST = 100_000_000
"""Bytes of the longest header that is read; the format's own library has this limit."""

BITS = {
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "F16": 16,
    "BF16": 16,
    "I16": 16,
    "U16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "C64": 64,
}
"""Bits of an element, by the names of the safetensors format."""

MOST = 1 << 62
"""Larger numbers are no sizes of files."""

UNREAD = "cannot be read"
"""How the problem of a shard begins that was not looked into."""

_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Tensor:
    """One tensor; ``bytes`` is what it takes in its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: str

    @property
    def elements(self) -> int:
        """How many numbers (or packed words) it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Shard:
    """One file: its size, the size that its header promises, and its tensors.

    ``problem`` is empty for a whole file.
    """

    file: str
    size: int
    expected: int
    tensors: tuple[Tensor, ...] = ()
    problem: str = ""


def read(path: Path) -> Shard:
    """Return what the header of a file says, and whether the file is as long.

    Nothing is raised for a broken file: its ``problem`` says what is wrong.
    """
    name = path.name
    try:
        with opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(64)
            if start.startswith(_POINTER):
                return Shard(name, size, 0, problem="only a pointer of Git LFS")
            length = int.from_bytes(start[:8], "little")
            if len(start) < 8 or not 2 <= length <= LARGEST:
                return Shard(name, size, 0, problem="no safetensors header")
            if size < 8 + length:
                return Shard(name, size, 8 + length, problem="ends within its header")
            raw = start[8 : 8 + length] + stream.read(max(0, length - 56))
    except OSError as exc:
        return Shard(name, 0, 0, problem=f"{UNREAD}: {exc.strerror or exc}")
    try:
        tensors, end = _tensors(json.loads(raw.decode()), name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Shard(name, size, 0, problem="its header is damaged")
    expected = 8 + length + end
    problem = "" if size == expected else _difference(size, expected)
    strange = next((t for t in tensors if t.dtype not in BITS), None)
    if strange is not None:
        what = f"{shown(strange.name)} is of the type {shown(strange.dtype)}"
        problem = f"{what}, which the format does not have"
    elif not tensors:
        problem = "its header has no tensor"
    return Shard(name, size, expected, tensors, problem)


def _difference(size: int, expected: int) -> str:
    if size < expected:
        return f"{expected - size} bytes are missing ({size} of {expected})"
    return f"{size - expected} bytes too long ({size} instead of {expected})"


def _tensors(header: dict[str, Any], file: str) -> tuple[tuple[Tensor, ...], int]:
    found, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, stop = map(_size, entry["data_offsets"])
        shape = tuple(map(_size, entry["shape"]))
        if not isinstance(entry["dtype"], str):
            raise TypeError(name)
        tensor = Tensor(name, entry["dtype"], shape, stop - begin, file)
        bits = BITS.get(tensor.dtype)
        if bits is not None and tensor.bytes != -(-tensor.elements * bits // 8):
            raise ValueError(name)
        found.append(tensor)
        spans.append((begin, stop))
    end = 0
    for begin, stop in sorted(spans):
        if begin != end or stop < begin:
            raise ValueError("gaps")
        end = stop
    return tuple(found), end


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError("not a size")
    return value
