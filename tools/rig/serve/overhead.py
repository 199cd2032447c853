# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a card holds beside weights and KV cache: an estimate, part by part.

vLLM measures this when it starts (a run with dummy tokens, a dummy sampling, and the
first graphs) and takes it off before the cache is laid out; nothing but a card can do
so. Each part says how it is reckoned.

The constants were measured with vLLM 0.25.1 (CUDA 13.0, torch 2.11) on one H200,
--dtype half, 2048 tokens and 256 sequences a step, eager, random models of 0.8 to 1.2 B
parameters: the log line "Memory profiling takes". Its "torch peak memory increase"
against the activations here, in GiB: Llama 0.12 and 0.12, Qwen2 0.26 and 0.25, Qwen3
MoE 0.66 and 0.65, Qwen3-Next 0.65 and 0.64, DeepSeek-V3 0.61 and 0.60; "non-torch
forward increase" was 0.22 for all of them. Not measured: V100s, graphs, several cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.rig.serve.recurrent import State
from tools.rig.serve.shapes import Attention, Shape

MIB = 1 << 20
GIB = 1 << 30

CONTEXT = 522 * MIB
"""CUDA context with the code of the libraries, measured as above: 0.51 GiB were taken
before the first weight. vLLM does not take it off the share that it was given: it must
be free beside that share."""

LIBRARIES = 225 * MIB
"""Not torch's: code that is loaded with the first forward, and workspaces. Measured."""

WORKSPACE = 32 * MIB
"""What cuBLAS keeps of torch's memory on Hopper: reckoned from what was left over in
those logs. On a V100 it takes less."""

PROCESSORS = 132
"""Multiprocessors of an H200, each with a row of numbers for top-k and top-p: what a
V100 has less (80) stays free."""

LINKS = 320 * MIB
"""NCCL's channels and the buffers of all-reduce, with more than one card. A guess."""

LOGIT = 14
"""Bytes for each logit of a dummy sampling: 2 of the model, 4 as float32, 4 of the
probabilities, 4 of the random numbers. A sampler that sorts takes 16 more."""

LOGIT_SECOND = 6
"""The same with the second model runner, which has neither of the last two."""

UNFOLDED_MOST = 64 * 1024
"""Tokens of a context that latent attention unfolds at a time, at most
(``determine_chunked_prefill_workspace_size`` in ``mla_attention.py``)."""

GRAPHS_FIXED = 96 * MIB
GRAPHS_LAYER = 9 * MIB
"""Graphs: a pool, and what each layer's nodes take, over 35 sizes of batches. A
guess."""

_SECOND_IN_FORK = frozenset(("Qwen3ForCausalLM",))
_SECOND_WITH_EXPERTS = frozenset(
    ("DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM")
)


@dataclass(frozen=True)
class Part:
    """One part, and how it is known."""

    name: str
    bytes: int
    how: str


def has_second_runner(shape: Shape, *, upstream: bool, quantised: bool) -> bool:
    """Return whether vLLM's second model runner is the default for a model.

    It samples with less memory. ``_is_default_v2_model_runner_model`` in
    ``vllm/config/vllm.py`` of the fork, and with `upstream` of vLLM 0.25.1.
    """
    if not upstream:
        dense = not shape.experts and not quantised
        return dense and shape.architecture in _SECOND_IN_FORK
    if any(isinstance(cache, State) for cache in shape.caches):
        return False
    return not shape.experts or shape.architecture in _SECOND_WITH_EXPERTS


def estimate(
    shape: Shape,
    *,
    tensor: int,
    layers: int,
    batched: int,
    sequences: int,
    eager: bool,
    item: int = 2,
    context: int = 0,
    block: int = 16,
    second: bool = False,
) -> tuple[Part, ...]:
    """Return what one card holds beside weights and cache.

    Parameters
    ----------
    shape
        The model.
    tensor
        Ranks of tensor parallelism.
    layers
        Layers on this card.
    batched
        Tokens of a step (``--max-num-batched-tokens``).
    sequences
        Sequences of a step (``--max-num-seqs``).
    eager
        Whether no graphs are made (``--enforce-eager``).
    item
        Bytes of a number of the model.
    context
        Tokens of eight sequences as long as may be: what latent attention unfolds.
    block
        Tokens of a block of the cache.
    second
        Whether the second model runner serves it.
    """
    heads = max(1, shape.heads // tensor) + 2 * max(1, shape.kv_heads // tensor)
    attention = 2 * heads * shape.head_dim
    # gate and up come together, and their product beside them
    feed = 3 * -(-shape.intermediate // tensor)
    # input, residual and output of a layer
    around = batched * 3 * shape.hidden * item
    attending = around + batched * attention * item
    attending += _unfolded(shape, tensor, context, sequences * block) * item
    feeding = around + batched * feed * item
    rows = min(sequences, batched)
    sampling = rows * shape.vocab * (LOGIT_SECOND if second else LOGIT)
    if not second:
        sampling += min(rows, PROCESSORS) * shape.vocab * 4
    # the hidden states of the dummy tokens stay while it samples
    sampling += batched * shape.hidden * item
    kept = WORKSPACE + _of_experts(shape, tensor, batched) * item
    parts = [
        Part(
            "activations",
            kept + max(attending, feeding, sampling),
            f"estimate: a step of {batched} tokens, or sampling for {sequences} "
            "sequences, whichever is more",
        ),
        Part("libraries", LIBRARIES, "measured on an H200: workspaces and code"),
    ]
    if tensor > 1:
        parts.append(Part("links", LINKS, "estimate: buffers between the cards"))
    if not eager:
        parts.append(
            Part(
                "graphs",
                GRAPHS_FIXED + GRAPHS_LAYER * layers,
                "estimate: CUDA graphs (none with --enforce-eager)",
            )
        )
    return tuple(parts)


def _unfolded(shape: Shape, tensor: int, context: int, blocks: int) -> int:
    """Return the numbers of a context that latent attention unfolds at a time."""
    if not any(isinstance(c, Attention) and c.is_mla for c in shape.caches):
        return 0
    tokens = max(min(max(context, 4 * blocks), UNFOLDED_MOST), blocks)
    return tokens * -(-shape.heads // tensor) * shape.unfolded


def _of_experts(shape: Shape, tensor: int, batched: int) -> int:
    """Return the numbers that a step of experts goes through, kept from layer to layer.

    Each token is there as often as it has experts: their two inner halves or the
    output, whichever is more, and the product of the halves.
    """
    if not shape.experts:
        return 0
    width = -(-shape.expert // tensor)
    return batched * shape.chosen * (max(2 * width, shape.hidden) + width)
