# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Models that are nothing but headers: the data of their shards is a hole in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.rig.serve import folder as folders
from tools.rig.serve.headers import BITS

Shapes = Mapping[str, tuple[str, Sequence[int]]]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 700,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
"""A small Llama with groups of four heads."""


def write_shard(path: Path, tensors: Shapes, *, cut: int = 0) -> None:
    """Write a shard with these tensors, by so many bytes too short."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = math.ceil(math.prod(shape) * BITS[dtype] / 8)
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end + size],
        }
        end += size
    raw = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(raw).to_bytes(8, "little") + raw)
        stream.truncate(8 + len(raw) + end - cut)


def llama_tensors(config: Mapping[str, Any] = LLAMA, dtype: str = "BF16") -> Shapes:
    """Return the tensors of a Llama, as transformers writes them."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    size = config["head_dim"]
    query, key = (
        config["num_attention_heads"] * size,
        config["num_key_value_heads"] * size,
    )
    made: dict[str, tuple[str, Sequence[int]]] = {
        "model.embed_tokens.weight": (dtype, (config["vocab_size"], hidden)),
        "model.norm.weight": (dtype, (hidden,)),
    }
    if not config.get("tie_word_embeddings"):
        made["lm_head.weight"] = (dtype, (config["vocab_size"], hidden))
    for at in range(config["num_hidden_layers"]):
        parts = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key, hidden),
            "self_attn.v_proj": (key, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (wide, hidden),
            "mlp.up_proj": (wide, hidden),
            "mlp.down_proj": (hidden, wide),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        for name, shape in parts.items():
            made[f"model.layers.{at}.{name}.weight"] = (dtype, shape)
    return made


def write(
    folder: Path,
    config: Mapping[str, Any] = LLAMA,
    tensors: Shapes | None = None,
    *,
    shards: int = 1,
) -> Path:
    """Write a whole model folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text('{"model": {}}')
    every = dict(llama_tensors() if tensors is None else tensors)
    if shards == 1:
        write_shard(folder / "model.safetensors", every)
        return folder
    names = list(every)
    weight_map = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        own = {name: every[name] for name in names[n::shards]}
        write_shard(folder / file, own)
        weight_map.update(dict.fromkeys(own, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def said(path: Path) -> str:
    """Return all problems of a folder in one string."""
    return "\n".join(problem.what for problem in folders.read(path).problems)
