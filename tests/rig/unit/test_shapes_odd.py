# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A config.json in which anything may stand, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rig.support.made_model import LLAMA
from tools.rig.base.errors import RigError
from tools.rig.serve import capacity, config_json, model, recurrent, shapes
from tools.rig.serve.capacity import Options
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.headers import Tensor

KINDS = (*recurrent._MAKERS, *sorted(shapes.MLA), *config_json.DEFAULTS, "gemma4")
KEYS = (
    *LLAMA,
    *[
        "n_layer",
        "num_layers",
        "n_head",
        "num_heads",
        "n_embd",
        "d_model",
        "layers_block_type",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "sliding_window_pattern",
        "max_window_layers",
        "multi_query",
        "n_head_kv",
        "num_kv_heads",
        "num_attention_groups",
        "intermediate_size",
        "n_inner",
        "per_layer_config",
        "rope_scaling",
        "rope_parameters",
        "kv_lora_rank",
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "v_head_dim",
        "index_head_dim",
        "index_topk",
        "global_head_dim",
        "attention_k_eq_v",
        "num_global_key_value_heads",
        "num_kv_shared_layers",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "full_attention_interval",
        "mamba_d_state",
        "mamba_expand",
        "state_size",
        "mamba_d_conv",
        "conv_kernel",
        "attn_layer_period",
        "attn_layer_offset",
        "expand",
        "n_groups",
        "mamba_d_ssm",
        "mamba_n_heads",
        "mamba_n_groups",
        "mamba_d_head",
        "attn_layer_indices",
        "mamba_num_heads",
        "mamba_head_dim",
        "ssm_state_size",
        "hybrid_override_pattern",
        "conv_dim",
        "conv_L_cache",
        "full_attn_idxs",
        "linear_attn_config",
        "mamba_ssm_dtype",
        "text_config",
        "quantization_config",
        "block_configs",
        "is_encoder_decoder",
        "auto_map",
    ],
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.sampled_from([10**18, 1 << 40, 1 << 62, -(10**18), 10**400, 0.5, 3.0])
    | st.floats()
    | st.sampled_from(["", "x", "4", "LG", "M-*E", "yarn", "fp8", "\x1b[2J"])
    | st.sampled_from(["full_attention", "sliding_attention", "mamba", "linear"])
)


def anything(keys: Sequence[str]) -> st.SearchStrategy[Any]:
    """Return what JSON may hold, with keys that are known."""
    return st.recursive(
        PLAIN,
        lambda inner: (
            st.lists(inner, max_size=6)
            | st.dictionaries(st.sampled_from(keys), inner, max_size=4)
        ),
        max_leaves=6,
    )


ODD = st.dictionaries(
    st.sampled_from(KEYS),
    anything(
        (
            *KEYS,
            *("0", "type", "factor", "original_max_position_embeddings"),
            *("num_heads", "head_dim", "kda_layers", "config_groups", "weights"),
            *("quant_method", "bits", "num_bits", "quantization", "quant_algo"),
        )
    ),
    max_size=5,
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ODD, st.sampled_from(["llama", *KINDS]), st.sampled_from([1, 2, 3]))
def test_odd_values_raise_nothing_else(
    odd: dict[str, Any], kind: str, tensor: int
) -> None:
    """Whatever a config.json holds, only expected errors come of it."""
    config = {**LLAMA, "model_type": kind, **odd}
    tensors = {
        name: Tensor(name, "F16", dims, 2, "a.safetensors")
        for name, dims in (
            ("model.embed_tokens.weight", ()),
            ("model.layers.0.self_attn.k_proj.weight", (64, 256)),
            (f"model.layers.{'9' * 5000}.mlp.weight", (1,)),
        )
    }
    quantised = config.get("quantization_config")
    quantised = quantised if isinstance(quantised, dict) else {}
    found = ModelFolder(
        Path("m"), config, quantised, (), "safetensors", tensors=tensors
    )
    problems = model.checks(found, tensor)
    assert all(p.what.isprintable() and p.hint.isprintable() for p in problems)
    for kind in ("auto", "fp8"):
        options = Options(16 << 30, tensor=tensor, cache_dtype=kind)
        try:
            made = capacity.plan(found, options)
        except RigError as exc:
            assert exc.what.isprintable()
        else:
            text = [*made.cannot_know, *made.notes, made.why, made.shape.architecture]
            assert all(one.isprintable() for one in text)
            assert json.dumps(made.to_json())
