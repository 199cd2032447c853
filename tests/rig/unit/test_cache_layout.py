# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How vLLM lays out its cache, and how many tokens go into so many bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.rig.support.logged_sizes import LOGGED, ON_CARD, Logged, OnCard
from tests.rig.support.made_model import LLAMA
from tests.rig.support.one_card import GIB
from tools.rig.serve import cache, shapes
from tools.rig.serve.cache import Rules


def layout(config: Mapping[str, Any], **rules: Any) -> cache.Layout:
    """Return the layout of a made model."""
    return cache.lay_out(shapes.read({**LLAMA, **config}), Rules(**rules))


@pytest.mark.parametrize("logged", LOGGED, ids=lambda one: one.name)
def test_as_vllm_logs(logged: Logged) -> None:
    """The size of the cache is what vLLM itself wrote into its log.

    On a CPU it has float32 for all recurrent states.
    """
    rules = Rules(
        tensor=logged.tensor,
        cache_item=logged.cache_item,
        block=logged.block,
        batched=logged.batched,
        ssm="float32",
        aligned=True,
        checkpoints=logged.checkpoints,
    )
    found = cache.lay_out(shapes.read(logged.config), rules)
    tokens = found.sequences(GIB, logged.length) * logged.length
    assert tokens == pytest.approx(logged.tokens, rel=0.0001)


@pytest.mark.parametrize("logged", ON_CARD, ids=lambda one: one.name)
def test_as_vllm_logs_on_a_card(logged: OnCard) -> None:
    """On a card a whole number of blocks makes exactly the logged tokens."""
    shape = shapes.read(logged.config)
    found = cache.lay_out(shape, Rules(upstream=True))
    assert found.groups[0].block == logged.block
    needs = found.needs(8192)
    count = round(logged.tokens * needs / 8192)
    assert int(count / needs * 8192) == logged.tokens
    pool = count * found.bytes_per_block / GIB
    # the log says two digits
    assert pool == pytest.approx(logged.pool, abs=0.0051)


def test_as_the_fork_logged_on_a_v100() -> None:
    """On V100s the fork logged the same for Qwen3.6-27B-FP8 on two cards.

    Its docs/design/sm70_v100_migration_control.md, entry of 2026-06-20: 13.86 GiB for
    the cache, 338,212 tokens with a maximum of 8,192, no prefixes kept.
    """
    qwen = {
        **{"model_type": "qwen3_5_text", "num_hidden_layers": 64},
        **{"num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 48},
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
    }
    found = layout(qwen, tensor=2)
    assert found.groups[0].block == 784
    tokens = found.sequences(int(13.86 * GIB), 8192) * 8192
    assert tokens == pytest.approx(338212, rel=0.005)


def test_bytes_of_a_token() -> None:
    """Keys and values of all layers, divided by the cards, halved by 8 bits."""
    assert layout({}).bytes_per_block == 16 * 2 * 2 * 32 * 2 * 4
    assert layout({}, tensor=2).bytes_per_block == 16 * 2 * 1 * 32 * 2 * 4
    assert layout({}, cache_item=1).bytes_per_block == 16 * 2 * 2 * 32 * 1 * 4
    # with more cards than key heads a head is still a head
    assert layout({}, tensor=8) == layout({}, tensor=2)


def test_latent_attention() -> None:
    """MLA keeps one row that no card can divide, and perhaps an index beside it."""
    mla = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert layout(mla, tensor=2).bytes_per_block == 16 * 576 * 2 * 4
    index = {**mla, "index_head_dim": 128, "index_topk": 2048}
    assert layout(index).bytes_per_block == 16 * (576 * 2 + 132) * 4


def test_longest_context() -> None:
    """The longest context takes all blocks and no more."""
    found = layout({})
    pool = 100 * found.bytes_per_block
    assert found.longest(pool, 1 << 20) == 1600
    assert found.longest(pool, 1000) == 1000
    assert found.longest(-5, 1000) == 0
    assert found.sequences(pool, 800) == 2


def test_states_without_prefixes() -> None:
    """A state takes one block, two where prefixes are kept, more with drafts."""
    qwen = {
        "model_type": "qwen3_next",
        "linear_num_value_heads": 8,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    }
    one = layout({**qwen, "num_hidden_layers": 4})
    assert one.needs(1) == 1 + 3
    assert layout({**qwen}, aligned=True).needs(1) == 1 + 3 * 2
    assert layout({**qwen}, speculative=2).needs(1) == 1 + 3 * 3
    # a state of float32: 3 rows of 1024 numbers beside it
    half = layout(qwen, ssm="float16")
    assert half.groups[0].block < one.groups[0].block
    assert "so that a state goes into one" in one.notes[0]


def test_pages_that_do_not_divide() -> None:
    """Pages of layers that do not divide each other are padded, and it is said."""
    gemma = {
        "model_type": "gemma4_text",
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "global_head_dim": 80,
    }
    assert "do not divide" in layout(gemma).notes[0]


def test_stages_of_a_pipeline() -> None:
    """A stage has room for its own layers alone, of each kind its share."""
    shape = shapes.read(LLAMA)
    half = cache.lay_out(shape, Rules(), range(0, 2))
    assert half.bytes_per_block * 2 == layout({}).bytes_per_block


def test_no_cache_at_all() -> None:
    """A model that keeps nothing has no cache to run out of."""
    config = {**LLAMA, "layer_types": ["strange"] * 4}
    shape = shapes.read(config)
    found = cache.lay_out(shape, Rules())
    assert found.groups == ()
    assert found.sequences(GIB, 100) == float("inf")
    assert "not known" in shape.unknown[0]
