# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A card of 16 GiB, and a model that is too big for it."""

from __future__ import annotations

from typing import Any

from tests.rig.support.made_model import LLAMA
from tools.rig.serve.capacity import Options

GIB = 1 << 30
CARD = Options(memory=16 * GIB)

BIG: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
"""A model of 32 B parameters: 61 GiB with 16 bits each."""
