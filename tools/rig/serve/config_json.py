# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The numbers of a config.json, under the names that different models give them.

As ``vllm/transformers_utils/model_arch_config_convertor.py`` of the fork finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "gemma2": {"head_dim": 256, "sliding_window_pattern": 2},
    "gemma": {"head_dim": 256},
    "cohere2": {"sliding_window_pattern": 4},
    "gpt_oss": {"sliding_window_pattern": 2},
    "qwen3_next": {"full_attention_interval": 4},
}
"""Values that published config.json files of these types leave out, as in the
configuration classes of transformers 5."""

_INNER = ("text_config", "llm_config", "language_config", "thinker_config")


def text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a configuration that is about the language model."""
    for key in _INNER:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            # what the part does not say, the whole may
            shared = {k: v for k, v in config.items() if not isinstance(v, Mapping)}
            own = text(inner)
            kind = own.get("model_type") or config.get("model_type", "")
            return {**shared, **own, "model_type": kind}
    return config


def overrides(own: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """Return what a configuration says of one layer alone (since transformers 5)."""
    listed = own.get("per_layer_config")
    if isinstance(listed, Mapping):
        for key, said in listed.items():
            if str(key).isdecimal() and int(key) == at and isinstance(said, Mapping):
                return said
    return {}


def kinds(own: Mapping[str, Any], kind: str, count: int) -> list[str]:
    """Return the kind of each layer, by the names that transformers has."""
    listed = own.get("layer_types")
    window = own.get("sliding_window")
    full, sliding = "full_attention", "sliding_attention"
    if own.get("use_sliding_window") is False or not window:
        window = 0
    if isinstance(listed, list) and len(listed) >= count:
        names = [str(name) for name in listed[:count]]
        return names if window else [full if n == sliding else n for n in names]
    every = own.get("sliding_window_pattern")
    if isinstance(every, str) and every:
        # the letters L (local) and G (global), repeated
        return [
            sliding if window and every[at % len(every)] == "L" else full
            for at in range(count)
        ]
    if not window:
        return [full] * count
    if every:
        # gpt_oss begins with a window as well: the last of each pattern sees all
        return [full if (at + 1) % int(every) == 0 else sliding for at in range(count)]
    if kind.startswith(("qwen2", "qwen3")):
        if not own.get("use_sliding_window"):
            return [full] * count
        first = int(own.get("max_window_layers") or 0)
        return [sliding if at >= first else full for at in range(count)]
    return [sliding] * count


def kv_heads(own: Mapping[str, Any], heads: int) -> int:
    """Return the number of key and value heads."""
    if own.get("multi_query") and not own.get("new_decoder_architecture"):
        return 1
    return (
        number(
            own,
            "num_key_value_heads",
            "n_head_kv",
            "num_kv_heads",
            "multi_query_group_num",
            "num_attention_groups",
        )
        or heads
    )


def head_dim(own: Mapping[str, Any], heads: int, hidden: int) -> int:
    """Return the size of one head."""
    given = number(own, "head_dim", "hidden_size_per_head", "attention_head_dim")
    return given or (hidden // heads if heads else 0)


def widest(own: Mapping[str, Any], hidden: int) -> int:
    """Return the width of the feed-forward part."""
    return number(own, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden


def max_len(own: Mapping[str, Any]) -> int:
    """Return the context that a model was made for; 0 where it does not say."""
    longest = number(
        own, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"
    )
    scaling = own.get("rope_scaling") or own.get("rope_parameters")
    if isinstance(scaling, Mapping):
        way = scaling.get("rope_type") or scaling.get("type")
        begin = scaling.get("original_max_position_embeddings")
        if way == "yarn" and begin:
            longest = int(float(scaling.get("factor") or 1) * int(begin))
    return longest


def number(own: Mapping[str, Any], *names: str) -> int:
    """Return the first number that is there under one of these names; 0 without."""
    for name in names:
        value = own.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value:
            return int(value)
        if isinstance(value, list) and value and isinstance(value[0], int):
            return int(max(value))
    return 0
