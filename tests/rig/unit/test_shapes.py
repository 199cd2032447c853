# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a config.json says of a model's layers, under the names of many models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA
from tools.rig.base.errors import CannotError
from tools.rig.serve import recurrent, shapes
from tools.rig.serve.recurrent import Part, State
from tools.rig.serve.shapes import Attention


def read(**own: Any) -> shapes.Shape:
    """Return the shape of the made Llama with other values."""
    return shapes.read({**LLAMA, **own})


def windows(shape: shapes.Shape) -> str:
    """Return the layers as letters: F all, W a window, S a state, - nothing."""
    letters = ""
    for layer in shape.layers:
        for kept in layer:
            if isinstance(kept, State):
                letters += "S"
            else:
                letters += "W" if kept.window else "F"
        letters += "" if layer else "-"
    return letters


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "FFFF"),
        ({"sliding_window": 64}, "WWWW"),
        ({"sliding_window": 64, "model_type": "qwen2"}, "FFFF"),
        (
            {
                "sliding_window": 64,
                "model_type": "qwen2",
                "use_sliding_window": True,
                "max_window_layers": 2,
            },
            "FFWW",
        ),
        ({"sliding_window": 64, "use_sliding_window": False}, "FFFF"),
        ({"sliding_window": 64, "model_type": "gemma2"}, "WFWF"),
        ({"sliding_window": 64, "model_type": "gpt_oss"}, "WFWF"),
        ({"sliding_window": 64, "model_type": "cohere2"}, "WWWF"),
        ({"sliding_window": 64, "sliding_window_pattern": "LLG"}, "WWFW"),
        ({"sliding_window": 64, "layer_types": ["sliding_attention"] * 4}, "WWWW"),
        ({"layer_types": ["sliding_attention", "chunked_attention"] * 2}, "FFFF"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 2}, "FF--"),
        ({"model_type": "qwen3_next", "full_attention_interval": 2}, "SFSF"),
        ({"model_type": "qwen3_5_moe_text"}, "SSSF"),
        ({"model_type": "jamba", "attn_layer_period": 2, "mamba_d_state": 4}, "FSFS"),
        ({"model_type": "bamba", "attn_layer_indices": [1]}, "SFSS"),
        ({"model_type": "falcon_h1"}, "FSFSFSFS"),
        ({"model_type": "mamba", "state_size": 4}, "SSSS"),
        ({"model_type": "mamba2", "num_heads": 4}, "SSSS"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E"}, "S-F-"),
        ({"model_type": "lfm2", "full_attn_idxs": [3]}, "SSSF"),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1]}},
            "SFFF",
        ),
    ],
)
def test_kinds_of_layers(own: dict[str, Any], expected: str) -> None:
    """Windows, states and all tokens: each layer is what vLLM makes of it."""
    assert windows(read(**own)) == expected


def test_heads() -> None:
    """Heads and their sizes are found under their other names."""
    assert read(num_key_value_heads=None, num_kv_heads=4).kv_heads == 4
    assert read(num_key_value_heads=None).kv_heads == 8
    assert read(multi_query=True).kv_heads == 1
    assert read(head_dim=None, hidden_size_per_head=48).head_dim == 48
    assert read(head_dim=None).head_dim == 32
    assert read(num_key_value_heads=[2, 4]).kv_heads == 4
    assert read(intermediate_size=None).intermediate == 1024


def test_key_and_value_of_other_sizes() -> None:
    """Where values are narrower than keys, each has its own size."""
    shape = read(model_type="mimo_v2", v_head_dim=16)
    assert shape.caches[0] == Attention(2, 32, 16)


def test_wider_heads_of_some_layers() -> None:
    """Gemma 4 has wider heads where a layer sees all, in both ways of saying it."""
    kinds = ["sliding_attention", "full_attention"] * 2
    own = {"model_type": "gemma4_text", "layer_types": kinds, "sliding_window": 64}
    plain = read(**own).caches
    assert plain[0] == Attention(2, 32, 32, 64)
    assert plain[1] == Attention(2, 512, 512)
    keys = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    assert read(**own, **keys, global_head_dim=64).caches[1] == Attention(1, 64, 64)
    listed = {"01": {"head_dim": 128}, "03": {"head_dim": 96}, "x": {}}
    newer = read(**own, per_layer_config=listed).caches
    assert (newer[1], newer[3]) == (Attention(2, 128, 128), Attention(2, 96, 96))


def test_text_part() -> None:
    """Of a model that sees, the text part is read; the whole fills its gaps."""
    inner = {k: v for k, v in LLAMA.items() if k != "vocab_size"}
    config = {
        "architectures": ["SeesForConditionalGeneration"],
        "model_type": "sees",
        "vocab_size": 700,
        "thinker_config": {"text_config": inner},
    }
    shape = shapes.read(config)
    assert (shape.model_type, shape.vocab) == ("llama", 700)
    assert shape.architecture == "SeesForConditionalGeneration"


def test_defaults_of_a_short_text_part() -> None:
    """The published Gemma 3 leaves out heads and vocabulary: its class has them."""
    short = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    shape = shapes.read({"model_type": "gemma3", "text_config": short})
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (8, 4, 256)
    assert windows(shape).count("F") == 5
    assert shape.tied


@pytest.mark.parametrize(
    ("own", "length"),
    [
        ({}, 4096),
        ({"max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"max_position_embeddings": None}, 0),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 2048,
                }
            },
            8192,
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 4096),
    ],
)
def test_longest_context(own: dict[str, Any], length: int) -> None:
    """The context that the model was made for, widened where it says so."""
    assert read(**own).max_len == length


def test_latent_attention() -> None:
    """MLA is one head of latent and position, where the type has it."""
    own = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert read(model_type="deepseek_v3", **own).caches[0] == Attention(1, 576, 0)
    assert read(model_type="minicpm3", **own).unknown
    assert read(model_type="deepseek_v2").caches[0] == Attention(2, 32, 32)


def test_too_little() -> None:
    """Without its main numbers nothing is guessed; a Mamba needs no heads."""
    with pytest.raises(CannotError, match="does not say"):
        read(num_attention_heads=None)
    assert read(model_type="mamba", num_attention_heads=None).heads == 0


def test_encoders_are_unknown() -> None:
    """A model with an encoder is not reckoned as one without."""
    assert "not known" in read(is_encoder_decoder=True).unknown[0]


@pytest.mark.parametrize(
    ("own", "kind", "expected"),
    [
        ({}, "falcon_h1", "model"),
        ({}, "qwen3_next", "float32"),
        ({"mamba_ssm_dtype": "bfloat16"}, "qwen3_5_text", "bfloat16"),
        ({"mamba_ssm_cache_dtype": "float16"}, "nemotron_h", "float16"),
    ],
)
def test_type_of_states(own: dict[str, Any], kind: str, expected: str) -> None:
    """States are as the model says, else as the fork has them."""
    assert recurrent.dtype(own, kind) == expected


def test_type_of_states_without_the_fork() -> None:
    """VLLM's own releases keep states of gated delta nets like the model."""
    shape = read(model_type="qwen3_next")
    assert (shape.state_dtype, shape.upstream_dtype) == ("float32", "model")
    assert recurrent.dtype({}, "nemotron_h", upstream=True) == "float32"
    own = {"mamba_ssm_dtype": "float32"}
    assert recurrent.dtype(own, "qwen3_5_text", upstream=True) == "float32"


def test_parts_of_a_state() -> None:
    """A part is divided by the cards; groups that cannot be are copied."""
    part = Part(512, 3, groups=1, grouped=128, grows=True)
    assert part.elements(1, 0) == 640 * 3
    assert part.elements(2, 0) == (512 + 2 * 128) // 2 * 3
    assert part.elements(1, 2) == 640 * 5
    assert Part(8, 4).elements(2, 2) == 16


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"sliding_window": "x"}, "sliding_window"),
        (
            {"sliding_window": 4, "sliding_window_pattern": 0.5},
            "sliding_window_pattern",
        ),
        ({"num_attention_heads": float("inf")}, "num_attention_heads"),
        ({"num_attention_heads": float("nan")}, "num_attention_heads"),
        ({"num_attention_heads": 1 << 17}, "num_attention_heads"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_hidden_layers": 10**18}, "num_hidden_layers"),
        ({"num_hidden_layers": -4}, "num_hidden_layers"),
        ({"num_hidden_layers": None, "layer_types": ["a"] * 5000}, "layer_types"),
        ({"num_hidden_layers": None, "layer_types": 3}, "layer_types"),
        ({"num_key_value_heads": [2, "x"]}, "num_key_value_heads"),
        ({"vocab_size": {"a": 1}}, "vocab_size"),
        ({"head_dim": None, "num_attention_heads": 512}, "head_dim"),
        ({"architectures": {"a": 1}}, "architectures"),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 5000},
            "pattern",
        ),
        ({"model_type": "bamba", "attn_layer_indices": 1}, "attn_layer_indices"),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": "x",
                    "original_max_position_embeddings": 1,
                }
            },
            "factor",
        ),
    ],
)
def test_what_is_no_number(own: dict[str, Any], key: str) -> None:
    """A value that cannot be is an expected error that names its key."""
    with pytest.raises(CannotError, match=key):
        read(**own)


def test_parts_within_parts() -> None:
    """Parts of a configuration are not followed without an end."""
    deep: dict[str, Any] = dict(LLAMA)
    for _ in range(5000):
        deep = {"text_config": deep}
    with pytest.raises(CannotError):
        shapes.read(deep)


def test_a_layer_of_its_own() -> None:
    """What one layer has alone is found by its number."""
    own = {"per_layer_config": {"1": {"head_dim": 64}, "2": 3}}
    assert [c.key for c in read(**own).caches if isinstance(c, Attention)] == [
        32,
        64,
        32,
        32,
    ]
