# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How tensors are divided among cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, Shapes, llama_tensors
from tools.rig.serve import shapes, weights
from tools.rig.serve.headers import BITS, Tensor

H, WIDE, Q, KV, V = 256, 512, 256, 64, 700
LAYER = 2 * H * (2 * Q + 2 * KV + 3 * WIDE)
NORMS = 2 * 2 * H
PADDED = 704


def listed(tensors: Shapes) -> list[Tensor]:
    """Return tensors as a shard's header gives them."""
    made = []
    for name, (dtype, shape) in tensors.items():
        one = Tensor(name, dtype, tuple(shape), 0, "x")
        made.append(replace(one, bytes=one.elements * BITS[dtype] // 8))
    return made


def card(
    tensors: Shapes, config: dict[str, Any] | None = None, **options: Any
) -> weights.Weights:
    """Return what the first card holds."""
    shape = shapes.read({**LLAMA, **(config or {})})
    tensor = options.pop("tensor", 1)
    return weights.per_card(listed(tensors), shape, tensor, **options)[0]


def test_one_card_holds_all() -> None:
    """One card holds everything, the vocabulary padded to a multiple of 64."""
    held = card(llama_tensors())
    assert held.bytes == 4 * (LAYER + NORMS) + 2 * H + 2 * 2 * PADDED * H
    assert held.embedding == 2 * 2 * PADDED * H
    assert (held.vision, held.draft) == (0, 0)


def test_two_cards() -> None:
    """Columns, rows and vocabulary are divided; norms are on every card."""
    held = card(llama_tensors(), tensor=2)
    assert held.bytes == 4 * (LAYER // 2 + NORMS) + 2 * H + 2 * PADDED * H


def test_more_cards_than_key_heads() -> None:
    """Two key heads on four cards: each card has a half of them, not a quarter."""
    held = card(llama_tensors(), tensor=4)
    keys = 2 * H * 2 * KV
    layer = (LAYER - keys) // 4 + keys // 2
    assert held.bytes == 4 * (layer + NORMS) + 2 * H + PADDED * H


def test_tied() -> None:
    """Where both ends are one tensor it is counted once, whether or not it is said."""
    one = {"tie_word_embeddings": True}
    twice = card(llama_tensors(), one)
    once = card(llama_tensors({**LLAMA, **one}))
    assert twice == once
    assert once.embedding == 2 * PADDED * H


def test_stages() -> None:
    """A pipeline's first stage has the embedding, its last one norm and head."""
    shape = shapes.read(LLAMA)
    first, last = weights.per_card(listed(llama_tensors()), shape, 1, 2)
    assert first.bytes == 2 * (LAYER + NORMS) + 2 * PADDED * H
    assert last.bytes == first.bytes + 2 * H
    tied = {**LLAMA, "tie_word_embeddings": True}
    both = weights.per_card(listed(llama_tensors(tied)), shapes.read(tied), 1, 2)
    assert [stage.embedding for stage in both] == [2 * PADDED * H] * 2


@pytest.mark.parametrize(
    ("layers", "stages", "parts"),
    [
        (4, 1, [4]),
        (4, 2, [2, 2]),
        (5, 2, [3, 2]),
        (7, 3, [2, 3, 2]),
        (10, 4, [2, 3, 3, 2]),
    ],
)
def test_partition(layers: int, stages: int, parts: list[int]) -> None:
    """Layers that are left over go to the middle, never to the last stage."""
    assert weights.partition(layers, stages) == parts


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "expected"),
    [
        ("model.layers.0.self_attn.q_proj.bias", "F16", (64,), 64),
        ("model.layers.0.self_attn.o_proj.bias", "F16", (64,), 128),
        ("model.layers.0.self_attn.q_proj.qweight", "I32", (32, 8), 512),
        ("model.layers.0.mlp.down_proj.scales", "F16", (2, 64), 128),
        ("model.layers.0.mlp.down_proj.weight_scale", "F32", (64, 1), 256),
        ("model.layers.0.mlp.down_proj.g_idx", "I32", (64,), 256),
        ("model.layers.0.mlp.up_proj.g_idx", "I32", (64,), 256),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", (4, 4), 32),
        ("model.layers.0.mlp.up_proj.input_scale", "F32", (), 4),
        ("model.layers.0.mlp.gate.weight", "BF16", (8, 64), 1024),
        ("model.layers.0.mlp.experts.3.down_proj.weight", "F8_E4M3", (8, 8), 32),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", (4, 16), 32),
        ("model.layers.0.linear_attn.A_log", "F32", (8,), 16),
        ("model.layers.0.linear_attn.conv1d.weight", "BF16", (64, 1, 4), 256),
        ("model.layers.0.linear_attn.norm.weight", "F32", (16,), 32),
        ("model.layers.0.self_attn.q_norm.weight", "F32", (16,), 32),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "BF16", (8, 8), 128),
        ("model.layers.0.self_attn.indexer.wq_b.weight", "BF16", (8, 8), 128),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (16,), 0),
        ("transformer.h.0.mlp.c_fc.weight", "F16", (16, 64), 1024),
        ("lm_head.bias", "F16", (64,), 64),
    ],
)
def test_one_tensor_on_two_cards(
    name: str, dtype: str, shape: tuple[int, ...], expected: int
) -> None:
    """Each kind of tensor is divided, or copied, as vLLM does it."""
    held = card({name: (dtype, shape)}, tensor=2)
    assert held.bytes == expected


def test_empty_tensor() -> None:
    """A tensor without rows takes nothing, and is no end of the reckoning."""
    assert card({"lm_head.weight": ("F16", (0, 8))}).bytes == 0


def test_what_is_not_loaded() -> None:
    """Layers for speculation are loaded when asked for, pictures unless not wanted."""
    own: Shapes = {
        "visual.blocks.0.attn.qkv.weight": ("BF16", (8, 8)),
        "model.layers.4.mlp.up_proj.weight": ("BF16", (16, 8)),
        "mtp.fc.weight": ("BF16", (32, 8)),
    }
    assert card(own).bytes == card(own).vision == 128
    assert card(own, vision=False).bytes == 0
    both = card(own, draft=True)
    assert (both.bytes, both.draft) == (128 + 256 + 512, 768)
    first, last = weights.per_card(listed(own), shapes.read(LLAMA), 1, 2, draft=True)
    assert (first.bytes, last.bytes) == (128, 768)


@pytest.mark.parametrize(
    ("name", "dtype", "held"),
    [
        ("weight", "BF16", 64 * 16 * 2),
        ("weight", "F8_E4M3", 64 * 16 * (1 + 2)),
        ("qweight", "I32", 64 * 16 * (4 + 8 * 2)),
    ],
)
def test_latent_attention_keeps_a_copy(name: str, dtype: str, held: int) -> None:
    """With MLA a quantised projection of keys and values is kept unfolded as well."""
    mla = {"model_type": "deepseek_v3", "kv_lora_rank": 16, "qk_rope_head_dim": 8}
    own: Shapes = {f"model.layers.0.self_attn.kv_b_proj.{name}": (dtype, (64, 16))}
    assert card(own, mla).bytes == held
    assert card(own, mla, tensor=2).bytes == held // 2
    assert card(own).bytes < held or dtype == "BF16"
