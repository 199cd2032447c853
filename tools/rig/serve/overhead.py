# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a card holds beside weights and KV cache: an estimate, part by part.

vLLM measures this when it starts (a run with dummy tokens, a dummy sampling, and the
first graphs) and takes it off before the cache is laid out; nothing but a card can do
so. Each part says how it is reckoned.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.rig.serve.shapes import Shape

MIB = 1 << 20
GIB = 1 << 30

CONTEXT = 450 * MIB
"""CUDA context with the code of the libraries, on a V100 or H200. vLLM does not take it
off the share that it was given: it must be free beside that share."""

LIBRARIES = 96 * MIB
"""Workspaces of cuBLAS and Triton, and code that is loaded with the first forward."""

LINKS = 320 * MIB
"""NCCL's channels and the buffers of all-reduce, with more than one card."""

LOGIT = 14
"""Bytes for each logit of a dummy sampling: 2 of the model, 4 as float32, 4 of the
probabilities, 4 of the random numbers. A sampler that sorts takes 16 more."""

GRAPHS_FIXED = 96 * MIB
GRAPHS_LAYER = 9 * MIB
"""Graphs: a pool, and what each layer's nodes take, over 35 sizes of batches."""


@dataclass(frozen=True)
class Part:
    """One part, and how it is known."""

    name: str
    bytes: int
    how: str


def estimate(
    shape: Shape,
    *,
    tensor: int,
    layers: int,
    batched: int,
    sequences: int,
    eager: bool,
    item: int = 2,
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
    """
    heads = max(1, shape.heads // tensor) + 2 * max(1, shape.kv_heads // tensor)
    attention = 2 * heads * shape.head_dim
    # gate and up come together, and their product beside them
    feed = 3 * -(-shape.intermediate // tensor)
    # input, residual and output of a layer, and of its all-reduce
    forward = batched * (4 * shape.hidden + max(attention, feed)) * item
    sampling = min(sequences, batched) * shape.vocab * LOGIT
    parts = [
        Part(
            "activations",
            # the hidden states of the dummy tokens stay while it samples
            max(forward, sampling + batched * shape.hidden * item),
            f"estimate: a step of {batched} tokens, or sampling for {sequences} "
            "sequences, whichever is more",
        ),
        Part("libraries", LIBRARIES, "estimate: workspaces and code"),
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
