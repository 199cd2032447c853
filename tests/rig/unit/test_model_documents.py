# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The JSON files beside a model's weights: what is broken in them is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import said, write
from tools.rig.base import regular_file
from tools.rig.serve import documents, folder
from tools.rig.serve.folder import INDEX


@pytest.mark.parametrize(
    "name", ["config.json", INDEX, "model-00001-of-00002.safetensors", "tokenizer.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe or a device is never waited for, but named."""
    write(tmp_path, shards=2)
    (tmp_path / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    problem = folder.read(tmp_path).errors[0]
    assert name in problem.what
    assert problem.what.endswith("not a regular file")


def test_pipe_after_the_look(tmp_path: Path) -> None:
    """What becomes a pipe between look and opening is not waited for either."""
    file = tmp_path / "file"
    file.touch()
    seen = file.stat()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a regular file"):
        regular_file.opened(file, lambda _: seen)


@pytest.mark.parametrize("text", ["", "version https://git-lfs", "[]"])
def test_broken_tokenizer(tmp_path: Path, text: str) -> None:
    """A tokenizer that is no JSON is a problem."""
    write(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text)
    (problem,) = folder.read(tmp_path).errors
    assert "tokenizer.json is not the JSON" in problem.what


WORDS = {f"{n:x}": n for n in range(400_000)}


@pytest.mark.parametrize(
    ("whole", "size"),
    [
        ({"a": 1}, "small"),
        ({"model": 7}, "small"),
        ({"vocab": {**WORDS, "model": 7}}, "large"),
    ],
    ids=["another", "number", "large"],
)
def test_json_that_is_no_tokenizer(tmp_path: Path, whole: Any, size: str) -> None:
    """What no tokenizer is made of is told before a server fails with it."""
    file = write(tmp_path) / "tokenizer.json"
    file.write_text(json.dumps(whole))
    assert (file.stat().st_size > documents.PARSED) is (size == "large")
    (problem,) = folder.read(tmp_path).errors
    assert "tokenizer.json is no tokenizer: it has no model" in problem.what


@pytest.mark.parametrize("indent", [None, 2])
def test_large_tokenizer(tmp_path: Path, indent: int | None) -> None:
    """One that is large is not parsed, but half of it is no tokenizer."""
    file = write(tmp_path) / "tokenizer.json"
    text = json.dumps({"version": "1.0", "model": {"vocab": WORDS}}, indent=indent)
    file.write_text(text)
    assert file.stat().st_size > documents.PARSED
    assert folder.read(tmp_path).problems == ()
    os.truncate(file, len(text) - 9)
    assert "tokenizer.json is not the JSON" in said(tmp_path)


def test_tokenizer_of_another_kind(tmp_path: Path) -> None:
    """One without a byte is a problem; a very large one is not looked into."""
    write(tmp_path)
    os.truncate(tmp_path / "tokenizer.json", documents.LARGEST + 1)
    assert folder.read(tmp_path).problems == ()
    (tmp_path / "tokenizer.model").touch()
    assert "tokenizer.model is empty" in said(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    (tmp_path / "tokenizer.model").mkdir()
    assert "not a regular file" in said(tmp_path)


@pytest.mark.parametrize("mapped", [None, {}, [1], {"a": 1}])
def test_index_without_files(tmp_path: Path, mapped: Any) -> None:
    """An index that names no files is a problem."""
    write(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": mapped}))
    assert "does not name a file for each tensor" in said(tmp_path)


def test_index_of_another_download(tmp_path: Path) -> None:
    """Tensors that the index promises and a shard lacks are named."""
    write(tmp_path, shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert "lacks 1 tensor(s)" in said(tmp_path)
    assert "model.extra.weight" in said(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not the JSON"),
        ("[1]", "not the JSON"),
        ("{}", "neither architectures nor model_type"),
        ('{"hidden_size": 1}', "neither architectures nor model_type"),
    ],
)
def test_broken_config(tmp_path: Path, text: str, words: str) -> None:
    """A configuration that cannot be read, or says nothing, is a problem."""
    write(tmp_path)
    (tmp_path / "config.json").write_text(text)
    assert words in said(tmp_path)


@pytest.mark.parametrize(
    "coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", INDEX])
def test_another_coding(tmp_path: Path, name: str, coding: str) -> None:
    """JSON that a server would not read is none here either; how to mend it is told."""
    file = write(tmp_path, shards=2) / name
    text = file.read_text() if file.exists() else '{"a": 1}'
    file.write_text(text, encoding=coding)
    said = f"{name} is not the JSON that it should be"
    [problem] = [p for p in folder.read(tmp_path).problems if said in p.what]
    assert problem.level == "error"
    if coding not in ("utf-32-be",):
        assert "UTF-8 without a byte order mark" in problem.what
        assert problem.hint.startswith(("tail -c +4 <", "iconv -f UTF-"))


def test_unreadable_config(tmp_path: Path) -> None:
    """A configuration that cannot be opened is a problem, not an end."""
    write(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    assert "cannot read" in said(tmp_path)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["tokenizer.model"], True),
        (["tekken.json"], True),
        (["vocab.json", "merges.txt"], True),
        (["vocab.json"], False),
        (["qwen.tiktoken"], True),
    ],
)
def test_tokenizers(tmp_path: Path, names: list[str], found: bool) -> None:
    """All usual files of a tokenizer count."""
    write(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    for name in names:
        (tmp_path / name).write_text("{}")
    assert ("no tokenizer" not in said(tmp_path)) is found
