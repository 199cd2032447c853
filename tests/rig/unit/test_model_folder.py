# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A model's folder is read without its weights, and what is missing is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rig.support import made_model
from tests.rig.support.made_model import LLAMA, llama_tensors, said, write, write_shard
from tools.rig.base.errors import UsageError
from tools.rig.serve import folder
from tools.rig.serve.folder import INDEX


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


def test_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder that is there or not, but cannot be read, says why."""
    with pytest.raises(UsageError, match="File name too long"):
        folder.read(tmp_path / ("x" * 300))


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


def test_made_model_is_small(tmp_path: Path) -> None:
    """The data of made models is a hole: tests write kilobytes, not gigabytes."""
    big = {"x.weight": ("BF16", (1 << 16, 1 << 14))}
    made_model.write(tmp_path, tensors=big)
    assert (tmp_path / "model.safetensors").stat().st_blocks * 512 < 1 << 20
    assert folder.read(tmp_path).bytes == 1 << 31
