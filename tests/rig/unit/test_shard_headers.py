# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A shard's header is held against the format, and the file against its header."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import said, write
from tools.rig.serve import folder, headers


def in_a_shard(file: Path, header: Any, size: int = 0) -> headers.Shard:
    """Return what is read of a shard with this header, and so many bytes of data."""
    raw = json.dumps(header).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * size)
    return headers.read(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: os.truncate(f, f.stat().st_size - 7), "7 bytes are missing"),
        (lambda f: os.truncate(f, 40), "ends within its header"),
        (lambda f: os.truncate(f, 3), "no safetensors header"),
        (lambda f: f.write_bytes(f.read_bytes() + b"xy"), "2 bytes too long"),
        (
            lambda f: f.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
            "only a pointer of Git LFS",
        ),
        (lambda f: f.write_bytes(b"\xff" * 100), "no safetensors header"),
        (
            lambda f: f.write_bytes((5).to_bytes(8, "little") + b"{nope"),
            "its header is damaged",
        ),
        (
            lambda f: f.write_bytes((2).to_bytes(8, "little") + b"[]"),
            "its header is damaged",
        ),
    ],
)
def test_shard_not_whole(tmp_path: Path, change: Any, words: str) -> None:
    """A shard is held against the length that its header promises."""
    write(tmp_path)
    change(tmp_path / "model.safetensors")
    (problem,) = folder.read(tmp_path).problems
    assert words in problem.what
    assert "model.safetensors" in problem.what
    assert problem.hint


def test_shard_that_is_closed_to_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that we may not read is not said to be broken."""
    write(tmp_path)

    def closed(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(headers, "opened", closed)
    (problem,) = folder.read(tmp_path).problems
    assert "cannot be read: Permission denied" in problem.what
    assert problem.hint.startswith("ls -lL ")
    assert "download" not in problem.hint


def test_header_with_gaps(tmp_path: Path) -> None:
    """Sizes that do not belong to the shapes, and gaps, make a header damaged."""
    for entry in (
        {"dtype": "F16", "shape": [2], "data_offsets": [0, 3]},
        {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]},
        {"dtype": "F16", "shape": [2]},
    ):
        shard = in_a_shard(tmp_path / "x.safetensors", {"a": entry}, 8)
        assert shard.problem == "its header is damaged"


def test_header_of_an_unknown_type(tmp_path: Path) -> None:
    """A type that the format does not have is a problem; six bits are one it has."""
    entry = {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}
    shard = in_a_shard(tmp_path / "x.safetensors", {"a": entry}, 3)
    assert (shard.problem, shard.tensors[0].bytes) == ("", 3)
    entry["dtype"] = "\x1b[31mF3"
    shard = in_a_shard(tmp_path / "x.safetensors", {"a": entry}, 3)
    assert shard.problem.startswith("a is of the type \\x1b[31mF3, which the format")


@pytest.mark.parametrize("header", [{}, {"__metadata__": {"format": "pt"}}])
def test_header_without_a_tensor(tmp_path: Path, header: dict[str, Any]) -> None:
    """A shard that holds nothing is a problem."""
    shard = in_a_shard(tmp_path / "x.safetensors", header)
    assert shard.problem == "its header has no tensor"


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F16", "shape": [10**300, 10**300], "data_offsets": [0, 4]},
        {"dtype": "F16", "shape": [-1, -2], "data_offsets": [0, 4]},
        {"dtype": "F16", "shape": [2.0], "data_offsets": [0, 4]},
        {"dtype": "F16", "shape": [2], "data_offsets": [0, 4, 8]},
        {"dtype": ["F16"], "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "XY", "shape": [2], "data_offsets": [4, 0]},
        {"dtype": "F16", "shape": [True, 2], "data_offsets": [0, 4]},
    ],
)
def test_header_with_odd_numbers(tmp_path: Path, entry: dict[str, Any]) -> None:
    """Numbers that are no sizes make a header damaged, and nothing is raised."""
    shard = in_a_shard(tmp_path / "x.safetensors", {"a": entry}, 4)
    assert shard.problem == "its header is damaged"


def test_unreadable_shard(tmp_path: Path) -> None:
    """What cannot be opened is a problem of that shard."""
    write(tmp_path)
    file = tmp_path / "model.safetensors"
    file.unlink()
    file.mkdir()
    assert "cannot be read" in said(tmp_path)
