# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tiny models with random weights, written without torch, transformers or a hub.

A model is three files: the configuration, the weights in safetensors' format (an 8-byte
length, a JSON header, the numbers) and a byte-level tokenizer of single letters.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS = 128, 2, 4
SPECIAL = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>")
VOCABULARY = 320
NAN = 0x7FC0
"""A bfloat16 that is no number."""

_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|user|>{{ m['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write(
    folder: Path,
    architecture: str = "llama",
    *,
    kv_heads: int = 2,
    shards: int = 1,
    nan: bool = False,
    seed: int = 0,
    head: int = 32,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model and return its folder.

    Parameters
    ----------
    architecture
        ``llama`` or ``qwen2``.
    shards
        Files that the weights are spread over, with an index when there are several.
    nan
        Damage the weights so that nothing but NaN is computed.
    head
        Numbers in one head.
    config
        Put over the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
    made: dict[str, Any] = {
        "architectures": [names[architecture]],
        "model_type": architecture,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    _json(folder / "config.json", {**made, **(config or {})})
    _tokenizer(folder)
    _weights(folder, _shapes(architecture, kv_heads, head), shards, nan, seed)
    return folder


def _shapes(architecture: str, kv_heads: int, head: int) -> dict[str, tuple[int, ...]]:
    wide, kv = HEADS * head, kv_heads * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN)
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows in (("q", wide), ("k", kv), ("v", kv)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            if architecture == "qwen2":
                shapes[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}self_attn.o_proj.weight"] = (HIDDEN, wide)
        shapes[f"{at}mlp.gate_proj.weight"] = (2 * HIDDEN, HIDDEN)
        shapes[f"{at}mlp.up_proj.weight"] = (2 * HIDDEN, HIDDEN)
        shapes[f"{at}mlp.down_proj.weight"] = (HIDDEN, 2 * HIDDEN)
        shapes[f"{at}input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{at}post_attention_layernorm.weight"] = (HIDDEN,)
    shapes["model.norm.weight"] = (HIDDEN,)
    shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return shapes


def _weights(
    folder: Path, shapes: dict[str, tuple[int, ...]], shards: int, nan: bool, seed: int
) -> None:
    rnd = random.Random(seed)
    names = sorted(shapes)
    index = {}
    for number in range(shards):
        file = (
            "model.safetensors"
            if shards == 1
            else f"model-{number + 1:05}-of-{shards:05}.safetensors"
        )
        held = names[number::shards]
        index.update(dict.fromkeys(held, file))
        _safetensors(folder / file, {n: shapes[n] for n in held}, nan, rnd)
    if shards > 1:
        _json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": 0}, "weight_map": index},
        )


def _safetensors(
    file: Path, shapes: dict[str, tuple[int, ...]], nan: bool, rnd: random.Random
) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if name == "model.norm.weight" and nan:
            words = [NAN] * count
        elif "norm" in name:
            words = [_bfloat16(1.0)] * count
        else:
            few = [_bfloat16(rnd.gauss(0, 0.1)) for _ in range(997)]
            words = [few[rnd.randrange(997)] for _ in range(count)]
        part = struct.pack(f"<{count}H", *words)
        parts.append(part)
        header[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [at, at + len(part)],
        }
        at += len(part)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))


def _bfloat16(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16


def _letters() -> list[str]:
    """Return the 256 letters that stand for bytes in a byte-level tokenizer."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in shown]
    table = {byte: chr(byte) for byte in shown}
    table.update({byte: chr(256 + at) for at, byte in enumerate(other)})
    return [table[byte] for byte in range(256)]


def _tokenizer(folder: Path) -> None:
    words = [*SPECIAL, *_letters()]
    added = [
        {
            "id": at,
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for at, word in enumerate(SPECIAL)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    _json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {**level, "use_regex": True},
            "post_processor": None,
            "decoder": {**level, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {word: at for at, word in enumerate(words)},
                "merges": [],
            },
        },
    )
    _json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[1],
            "model_max_length": 2048,
            "clean_up_tokenization_spaces": False,
            "chat_template": _TEMPLATE,
        },
    )


def _json(file: Path, data: Any) -> None:
    file.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
