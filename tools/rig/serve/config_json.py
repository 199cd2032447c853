# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The numbers of a config.json, under the names that different models give them.

As ``vllm/transformers_utils/model_arch_config_convertor.py`` of the fork finds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tools.rig.base.errors import CannotError
from tools.rig.serve.foreign import shown

LAYERS = 4096
"""The most layers that are believed; published models have less than 200."""

HEADS = 1 << 16
"""The most heads of a layer that are believed."""

MOST = 1 << 40
"""The largest of all other numbers."""

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


_DEEPEST = 8
"""Parts within parts that are followed; published models have two."""


def text(config: Mapping[str, Any], deep: int = _DEEPEST) -> Mapping[str, Any]:
    """Return the part of a configuration that is about the language model."""
    for key in _INNER if deep else ():
        inner = config.get(key)
        if isinstance(inner, Mapping):
            # what the part does not say, the whole may
            shared = {k: v for k, v in config.items() if not isinstance(v, Mapping)}
            own = text(inner, deep - 1)
            kind = own.get("model_type") or config.get("model_type", "")
            return {**shared, **own, "model_type": kind}
    return config


def overrides(own: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """Return what a configuration says of one layer alone (since transformers 5)."""
    each = own.get("per_layer_config")
    if isinstance(each, Mapping):
        # numbers are filled up with zeros to one width
        for width in range(1, len(str(LAYERS)) + 2):
            said = each.get(f"{at:0{width}}")
            if isinstance(said, Mapping):
                return said
    return {}


def kinds(own: Mapping[str, Any], kind: str, count: int) -> list[str]:
    """Return the kind of each layer, by the names that transformers has."""
    named = own.get("layer_types")
    window = number(own, "sliding_window")
    full, sliding = "full_attention", "sliding_attention"
    if own.get("use_sliding_window") is False:
        window = 0
    if isinstance(named, list) and len(named) >= count:
        names = [word(name) for name in named[:count]]
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
    every = number(own, "sliding_window_pattern")
    if every:
        # gpt_oss begins with a window as well: the last of each pattern sees all
        return [full if (at + 1) % every == 0 else sliding for at in range(count)]
    if kind.startswith(("qwen2", "qwen3")):
        if not own.get("use_sliding_window"):
            return [full] * count
        first = number(own, "max_window_layers")
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
            most=HEADS,
        )
        or heads
    )


def head_dim(own: Mapping[str, Any], heads: int, hidden: int) -> int:
    """Return the size of one head.

    Raises
    ------
    CannotError
        When nothing would be left for a head.
    """
    given = number(own, "head_dim", "hidden_size_per_head", "attention_head_dim")
    if heads > hidden and not given:
        raise CannotError(
            f"the config.json has no head_dim, and num_attention_heads {heads} is more "
            f"than the hidden size {hidden}"
        )
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
        if way == "yarn":
            begin = number(scaling, "original_max_position_embeddings")
            longest = int(_factor(scaling) * begin) or longest
    return longest


def number(own: Mapping[str, Any], *names: str, most: int = MOST) -> int:
    """Return the first number that is there under one of these names; 0 without.

    Of a list, which some models have for their layers, the largest one is taken.

    Parameters
    ----------
    own
        The configuration.
    names
        Keys, of which the first with a number other than 0 counts.
    most
        The largest number that is believed.

    Raises
    ------
    CannotError
        When something else is there than whole numbers from 0 to `most`.
    """
    for name in names:
        value = own.get(name)
        several = value if isinstance(value, list) else [value]
        found = max((_whole(name, one, most) for one in several), default=0)
        if found:
            return found
    return 0


def listed(own: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list; one without anything where it is not there.

    Raises
    ------
    CannotError
        When something else is there.
    """
    value = own.get(key) or []
    if not isinstance(value, list):
        raise CannotError(f"{key} of the config.json is {shown(value)}, not a list")
    return value


def few(own: Mapping[str, Any], count: int) -> int:
    """Return a number of layers, where it is one to believe.

    Raises
    ------
    CannotError
        When there are too many, with the key that says so many.
    """
    if count > LAYERS:
        said = [key for key, value in own.items() if _size(value) == count]
        raise CannotError(
            f"{shown(said[0]) if said else 'layers'} of the config.json has {count} "
            f"layers, more than {LAYERS}"
        )
    return count


def word(value: object) -> str:
    """Return a name as it can be shown; empty where it is none."""
    return shown(value) if isinstance(value, str) else ""


def _size(value: object) -> int:
    return len(value) if isinstance(value, (str, list)) else 0


def _whole(name: str, value: object, most: int) -> int:
    if value is None or value is False:
        return 0
    if isinstance(value, (int, float)) and value is not True and 0 <= value <= most:
        whole = int(value)
        if whole == value:
            return whole
    raise CannotError(
        f"{name} of the config.json is {shown(value)}, not a whole number from 0 to "
        f"{most}"
    )


def _factor(scaling: Mapping[str, Any]) -> float:
    value = scaling.get("factor") or 1
    if isinstance(value, (int, float)) and 0 < value <= MOST and math.isfinite(value):
        return float(value)
    raise CannotError(
        f"factor of rope_scaling in the config.json is {shown(value)}, not a number "
        "above 0"
    )
