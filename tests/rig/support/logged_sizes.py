# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Sizes of the KV cache as real vLLM logged them.

vLLM 0.32.0 on the processor, VLLM_CPU_KVCACHE_SPACE=1, --dtype bfloat16, models of
random weights written with transformers 5.19: the line ``CPU KV cache size: N tokens``.
Of each config.json what differs from the made Llama stands here.

And of vLLM 0.25.1 on an H200, --dtype half, eager, 8192 tokens, 256 sequences at most,
2048 tokens a step, no prefixes kept for Qwen3-Next: also what it measured beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.rig.support.made_model import LLAMA


@dataclass(frozen=True)
class Logged:
    """One start of a server: the model, how it was started, and what it logged."""

    name: str
    own: dict[str, Any]
    tokens: int
    length: int = 2048
    tensor: int = 1
    cache_item: int = 2
    block: int = 128
    batched: int = 8192
    checkpoints: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration."""
        return {**LLAMA, **self.own}


WINDOW, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {
        "layer_types": [FULL] * 4,
        "model_type": "qwen2",
        "num_key_value_heads": 4,
        "sliding_window": None,
        "head_dim": None,
    },
    "qwen3moe": {"head_dim": 64, "model_type": "qwen3_moe", "sliding_window": None},
    "mixtral": {"head_dim": None, "model_type": "mixtral", "sliding_window": None},
    "mistral": {"model_type": "mistral", "sliding_window": 256},
    "phi3": {"model_type": "phi3", "sliding_window": 2047, "head_dim": None},
    "gemma2": {
        "head_dim": 64,
        "layer_types": [WINDOW, FULL] * 3,
        "model_type": "gemma2",
        "num_hidden_layers": 6,
        "sliding_window": 512,
    },
    "gemma3": {
        "head_dim": 64,
        "layer_types": [*[WINDOW] * 5, FULL, *[WINDOW] * 5, FULL, WINDOW],
        "model_type": "gemma3_text",
        "num_hidden_layers": 13,
        "sliding_window": 256,
    },
    "gemma4": {
        "head_dim": 64,
        "layer_types": [*[WINDOW] * 5, FULL] * 2,
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "per_layer_config": {"05": {"head_dim": 128}, "11": {"head_dim": 128}},
        "sliding_window": 256,
    },
    "gemma4s": {
        "head_dim": 64,
        "layer_types": [*[WINDOW] * 5, FULL] * 2,
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "num_kv_shared_layers": 4,
        "per_layer_config": {"05": {"head_dim": 128}, "11": {"head_dim": 128}},
        "sliding_window": 256,
    },
    "gptoss": {
        "head_dim": 64,
        "layer_types": [WINDOW, FULL] * 3,
        "model_type": "gpt_oss",
        "num_hidden_layers": 6,
        "sliding_window": 128,
    },
    "cohere2": {
        "layer_types": [*[WINDOW] * 3, FULL] * 2,
        "model_type": "cohere2",
        "num_hidden_layers": 8,
        "sliding_window": 256,
    },
    "exaone4": {
        "layer_types": [*[WINDOW] * 3, FULL] * 2,
        "model_type": "exaone4",
        "num_hidden_layers": 8,
        "sliding_window": 256,
        "head_dim": None,
    },
    "deepseek3": {
        "head_dim": 64,
        "kv_lora_rank": 512,
        "model_type": "deepseek_v3",
        "num_key_value_heads": 8,
        "qk_rope_head_dim": 64,
    },
    "qwen3next": {
        "head_dim": 64,
        "layer_types": [*[LINEAR] * 3, FULL] * 2,
        "linear_key_head_dim": 64,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_value_head_dim": 64,
        "model_type": "qwen3_next",
        "num_hidden_layers": 8,
    },
    "jamba": {
        "attn_layer_offset": 2,
        "attn_layer_period": 4,
        "model_type": "jamba",
        "num_hidden_layers": 8,
        "head_dim": None,
    },
    "falconh1": {
        "mamba_d_state": 64,
        "mamba_n_heads": 16,
        "model_type": "falcon_h1",
        "head_dim": None,
    },
    "granite": {
        "layer_types": [*[LINEAR] * 2, FULL] * 2,
        "mamba_d_state": 64,
        "mamba_n_heads": 16,
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 6,
        "head_dim": None,
    },
    "nemotronh": {
        "layers_block_type": [LINEAR, "mlp", FULL] * 2,
        "mamba_head_dim": 32,
        "mamba_num_heads": 16,
        "model_type": "nemotron_h",
        "n_groups": 2,
        "sliding_window": None,
        "ssm_state_size": 64,
        "num_hidden_layers": None,
    },
}

LOGGED = (
    Logged("llama", CONFIGS["llama"], 1048576),
    Logged("llama-fp8-4096", CONFIGS["llama"], 2097152, length=4096, cache_item=1),
    Logged("qwen2", CONFIGS["qwen2"], 524288),
    Logged("qwen2-tp2-4096", CONFIGS["qwen2"], 1048576, length=4096, tensor=2),
    Logged("qwen3moe", CONFIGS["qwen3moe"], 524288),
    Logged("mixtral", CONFIGS["mixtral"], 1048576),
    Logged("mistral", CONFIGS["mistral"], 986895),
    Logged("mistral-b256-4096", CONFIGS["mistral"], 6710886, length=4096, batched=256),
    Logged("phi3", CONFIGS["phi3"], 986895),
    Logged("gemma2", CONFIGS["gemma2"], 338912),
    Logged("gemma2-b-4096", CONFIGS["gemma2"], 344127, length=4096),
    Logged("gemma3", CONFIGS["gemma3"], 142179),
    Logged("gemma3-mbt512-4096", CONFIGS["gemma3"], 453438, length=4096, batched=512),
    Logged("gemma3-tp2-4096", CONFIGS["gemma3"], 291777, length=4096, tensor=2),
    Logged("gemma4", CONFIGS["gemma4"], 137518),
    Logged("gemma4s", CONFIGS["gemma4s"], 212369),
    Logged("gptoss", CONFIGS["gptoss"], 338912),
    Logged("cohere2", CONFIGS["cohere2"], 500812),
    Logged("exaone4", CONFIGS["exaone4"], 500812),
    Logged("deepseek3-4096", CONFIGS["deepseek3"], 233008, length=4096, block=16),
    Logged(
        "deepseek3-tp2-4096",
        CONFIGS["deepseek3"],
        233008,
        length=4096,
        tensor=2,
        block=16,
    ),
    Logged("qwen3next", CONFIGS["qwen3next"], 465920),
    Logged("qwen3next-prefix-4096", CONFIGS["qwen3next"], 657769, length=4096),
    Logged("qwen3next-tp2-4096", CONFIGS["qwen3next"], 1315779, length=4096, tensor=2),
    Logged("jamba", CONFIGS["jamba"], 1198372),
    Logged("falconh1", CONFIGS["falconh1"], 479232, checkpoints=1),
    Logged("granite", CONFIGS["granite"], 670924, checkpoints=1),
    Logged("nemotronh", CONFIGS["nemotronh"], 958464, checkpoints=1),
)


@dataclass(frozen=True)
class OnCard:
    """One start on a card: sizes in GiB, as logged with two digits."""

    name: str
    own: dict[str, Any]
    tokens: int
    pool: float
    peak: float
    block: int = 16

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration."""
        return {**LLAMA, **self.own}


MOE: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "vocab_size": 151936,
    "num_experts": 16,
    "num_experts_per_tok": 4,
}

ON_CARD = (
    OnCard(
        "llama",
        {
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "vocab_size": 32000,
        },
        577408,
        12.11,
        0.12,
    ),
    OnCard(
        "qwen2",
        {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 20,
            "num_attention_heads": 12,
            "head_dim": None,
            "vocab_size": 151936,
        },
        617472,
        11.78,
        0.26,
    ),
    OnCard(
        "qwen3moe",
        {
            **MOE,
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "moe_intermediate_size": 768,
        },
        385280,
        11.76,
        0.66,
    ),
    OnCard(
        "qwen3next",
        {
            **MOE,
            "architectures": ["Qwen3NextForCausalLM"],
            "model_type": "qwen3_next",
            "head_dim": 256,
            "moe_intermediate_size": 512,
            "linear_num_value_heads": 16,
            "linear_num_key_heads": 8,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        },
        1394326,
        12.01,
        0.65,
        block=272,
    ),
    OnCard(
        "deepseek",
        {
            **MOE,
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "intermediate_size": 4096,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 64,
            "vocab_size": 102400,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
        },
        949584,
        12.23,
        0.61,
    ),
)
