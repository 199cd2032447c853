# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A model's folder is read without its weights, and what is missing is named."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import made_model
from tests.rig.support.made_model import LLAMA, llama_tensors, write, write_shard
from tools.rig.base.errors import UsageError
from tools.rig.serve import documents, folder, foreign, headers, model
from tools.rig.serve.folder import INDEX


def said(path: Path) -> str:
    """Return all problems of a folder in one string."""
    return "\n".join(problem.what for problem in folder.read(path).problems)


def test_whole_model(tmp_path: Path) -> None:
    """A whole folder has no problem, and every tensor with its size."""
    found = folder.read(write(tmp_path))
    assert found.problems == ()
    assert found.format == "safetensors"
    assert len(found.tensors) == len(llama_tensors())
    embedding = found.tensors["model.embed_tokens.weight"]
    assert (embedding.dtype, embedding.shape) == ("BF16", (700, 256))
    assert embedding.bytes == 700 * 256 * 2
    assert found.bytes == sum(t.bytes for t in found.shards[0].tensors)
    assert found.shards[0].size == found.shards[0].expected > found.bytes


def test_two_hundred_shards_in_a_second(tmp_path: Path) -> None:
    """A model of 200 shards and 10,000 tensors is read within a second."""
    many = {
        f"model.layers.{n % 80}.w{n}.weight": ("BF16", (8, 8)) for n in range(10000)
    }
    write(tmp_path, tensors=many, shards=200)
    took = []
    for _ in range(3):
        # time of this process alone: other work on this machine is none of ours
        start = time.process_time()
        found = folder.read(tmp_path)
        took.append(time.process_time() - start)
    assert len(found.shards) == 200
    assert len(found.tensors) == 10000
    assert min(took) < 1


def test_shard_missing(tmp_path: Path) -> None:
    """A shard that the index names and that is not there is named."""
    write(tmp_path, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    found = folder.read(tmp_path)
    (problem,) = found.problems
    assert "1 shard(s)" in problem.what
    assert "model-00002-of-00003.safetensors" in problem.what
    assert problem.level == "error"
    assert problem.hint.startswith("ls -l ")
    assert found.errors == (problem,)


def test_shard_missing_without_an_index(tmp_path: Path) -> None:
    """Without an index the numbers in the names tell what is missing."""
    write(tmp_path, shards=5)
    (tmp_path / INDEX).unlink()
    for n in (1, 2, 4, 5):
        (tmp_path / f"model-{n:05}-of-00005.safetensors").unlink()
    assert "4 shard(s)" in said(tmp_path)
    assert "model-00001-of-00005.safetensors" in said(tmp_path)
    assert said(tmp_path).endswith("...")


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
        raw = json.dumps({"a": entry}).encode()
        file = tmp_path / "x.safetensors"
        file.write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * 8)
        assert headers.read(file).problem == "its header is damaged"


def in_a_shard(file: Path, header: Any, size: int = 0) -> headers.Shard:
    """Return what is read of a shard with this header, and so many bytes of data."""
    raw = json.dumps(header).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * size)
    return headers.read(file)


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
        foreign.opened(file, lambda _: seen)


@pytest.mark.parametrize("text", ["", "version https://git-lfs", "[]"])
def test_broken_tokenizer(tmp_path: Path, text: str) -> None:
    """A tokenizer that is no JSON is a problem."""
    write(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text)
    (problem,) = folder.read(tmp_path).errors
    assert "tokenizer.json is not the JSON" in problem.what


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


def test_texts_of_a_model_are_escaped(tmp_path: Path) -> None:
    """Words from a model's files cannot move the cursor of a terminal."""
    own = {**LLAMA, "quantization_config": {"quant_method": "\x1b[2Jx\u202e"}}
    write(tmp_path, own)
    mapped = {"weight_map": {"a": "\x1b]0;y\x07\ud800\U000e0001"}}
    (tmp_path / INDEX).write_text(json.dumps(mapped))
    words = [f"{p.what}{p.hint}" for p in model.checks(folder.read(tmp_path))]
    assert all(text.isprintable() for text in words)
    assert "\\x1b]0;y\\x07\\ud800\\U000e0001" in words[0]
    assert "\\x1b[2jx\\u202e" in words[-1]
    assert foreign.shown("y" * 300) == "y" * 197 + "..."
    assert foreign.shown({"a": 1}) == "a dict"


def test_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder that is there or not, but cannot be read, says why."""
    with pytest.raises(UsageError, match="File name too long"):
        folder.read(tmp_path / ("x" * 300))


def test_unreadable_shard(tmp_path: Path) -> None:
    """What cannot be opened is a problem of that shard."""
    write(tmp_path)
    file = tmp_path / "model.safetensors"
    file.unlink()
    file.mkdir()
    assert "cannot be read" in said(tmp_path)


def test_index_of_another_download(tmp_path: Path) -> None:
    """Tensors that the index promises and a shard lacks are named."""
    write(tmp_path, shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert "lacks 1 tensor(s)" in said(tmp_path)
    assert "model.extra.weight" in said(tmp_path)


def test_what_is_not_a_model(tmp_path: Path) -> None:
    """A folder without configuration, weights or tokenizer says so."""
    assert "no config.json" in said(tmp_path)
    assert "no weights" in said(tmp_path)
    assert "no tokenizer" in said(tmp_path)
    (tmp_path / "params.json").write_text("{}")
    assert "params.json" in said(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "LoRA adapter" in said(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    """A name of a hub is no folder."""
    with pytest.raises(UsageError) as caught:
        folder.read(tmp_path / "org" / "model")
    assert caught.value.hint.startswith("ls -ld ")


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


def test_pickles_are_never_read(tmp_path: Path) -> None:
    """Of pickles nothing is known: they are not opened."""
    write(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    found = folder.read(tmp_path)
    assert found.format == "pickle"
    assert found.problems[0].level == "unknown"
    assert not found.tensors


def test_gguf(tmp_path: Path) -> None:
    """A GGUF file is unknown, alone and in a folder."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    assert folder.read(file).format == "gguf"
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert folder.read(tmp_path).format == "gguf"


def test_mistrals_second_copy(tmp_path: Path) -> None:
    """The same weights once more in another format are not counted twice."""
    write(tmp_path)
    write_shard(tmp_path / "consolidated.safetensors", {"x": ("F16", (4,))})
    assert [s.file for s in folder.read(tmp_path).shards] == ["model.safetensors"]


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


def test_quantisation(tmp_path: Path) -> None:
    """It is found in config.json, in its text part, and in files beside it."""
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "awq"}})
    assert folder.read(tmp_path).quantisation["quant_method"] == "awq"
    inner = {"text_config": {**LLAMA, "quantization_config": {"quant_method": "fp8"}}}
    write(tmp_path, {**LLAMA, **inner})
    assert folder.read(tmp_path).quantisation["quant_method"] == "fp8"
    write(tmp_path)
    (tmp_path / "quantize_config.json").write_text('{"bits": 4}')
    assert folder.read(tmp_path).quantisation == {"quant_method": "gptq", "bits": 4}


def test_heads_and_cards(tmp_path: Path) -> None:
    """Heads must be divided by the cards, or copied to them evenly."""
    found = folder.read(write(tmp_path))
    assert model.checks(found, 1) == []
    three = model.checks(found, 3)
    assert "8 attention heads cannot be divided by --tp 3" in three[0].what
    assert three[0].hint == "one of --tp 1, 2, 4, 8"
    (copied,) = model.checks(found, 4)
    assert copied.level == "note"
    assert "held by 2 cards" in copied.what
    assert "4 layers cannot be shared by 5" in model.checks(found, 1, 5)[0].what


def test_key_heads_and_cards(tmp_path: Path) -> None:
    """Key heads that can neither be divided nor copied evenly are a problem."""
    many = {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 6}
    found = folder.read(write(tmp_path, many, llama_tensors(many)))
    assert "6 key and value heads cannot be divided" in model.checks(found, 4)[0].what
    few = {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 3}
    found = folder.read(write(tmp_path, few, llama_tensors(few)))
    assert "is no multiple of the 3 key" in model.checks(found, 4)[0].what
    odd = {**LLAMA, "vocab_size": 701}
    found = folder.read(write(tmp_path, odd, llama_tensors(odd)))
    assert "padded to 704" in model.checks(found, 2)[0].what


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_key_value_heads", 4, "4 key heads of 32"),
        ("num_attention_heads", 16, "16 heads of 32"),
        ("vocab_size", 900, "a vocabulary of 900"),
        ("num_hidden_layers", 5, "no tensor belongs to layer 4"),
    ],
)
def test_config_against_tensors(
    tmp_path: Path, key: str, value: int, words: str
) -> None:
    """A number in config.json that the tensors contradict is found at once."""
    write(tmp_path, {**LLAMA, key: value}, llama_tensors())
    problems = model.checks(folder.read(tmp_path))
    assert words in problems[0].what
    assert problems[0].hint.startswith("cat ")


def test_config_that_says_too_little(tmp_path: Path) -> None:
    """Without layers and heads there is one problem more, and no end."""
    write(tmp_path, {"model_type": "llama"})
    assert "does not say" in model.checks(folder.read(tmp_path))[0].what
    (tmp_path / "config.json").unlink()
    assert "no config.json" in model.checks(folder.read(tmp_path))[0].what


def test_code_of_its_own(tmp_path: Path) -> None:
    """A model that brings code is noted: it is never run unasked."""
    write(tmp_path, {**LLAMA, "auto_map": {"AutoModel": "x.Y"}})
    (note,) = model.checks(folder.read(tmp_path))
    assert (note.level, "--trust-remote-code" in note.what) == ("note", True)


def test_quantised_for_volta(tmp_path: Path) -> None:
    """What a V100 cannot run is a problem there, and on no other card."""
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "torchao"}})
    found = folder.read(tmp_path)
    assert "a V100 cannot run it" in model.checks(found)[0].what
    assert model.checks(found, sm=80) == []
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "new"}})
    assert model.checks(folder.read(tmp_path))[0].level == "unknown"
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "awq"}})
    assert model.checks(folder.read(tmp_path)) == []


def test_made_model_is_small(tmp_path: Path) -> None:
    """The data of made models is a hole: tests write kilobytes, not gigabytes."""
    big = {"x.weight": ("BF16", (1 << 16, 1 << 14))}
    made_model.write(tmp_path, tensors=big)
    assert (tmp_path / "model.safetensors").stat().st_blocks * 512 < 1 << 20
    assert folder.read(tmp_path).bytes == 1 << 31
