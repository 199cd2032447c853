# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How vLLM lays out the KV cache of a model, and how many tokens go into it.

Blocks of one size serve all kinds of layers: layers that remember alike form a group,
groups are made equally large, and a sequence takes blocks from each of them. The rules
are those of the fork's ``vllm/v1/core/kv_cache_utils.py``,
``vllm/v1/kv_cache_interface.py`` and, for states beside attention,
``Platform._align_hybrid_block_size``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tools.rig.serve.recurrent import SSM, State
from tools.rig.serve.shapes import Attention, Shape

SIZES = {
    "float32": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}
"""Bytes of a number, by the names that vLLM's options have."""


@dataclass(frozen=True)
class Rules:
    """What decides the layout beside the model.

    Attributes
    ----------
    tensor
        Ranks of tensor parallelism.
    item
        Bytes of a number of the model (2 with ``--dtype half``).
    cache_item
        Bytes of a number in the cache.
    block
        Tokens of a block: 16 on a GPU, 128 on a CPU.
    batched
        ``--max-num-batched-tokens``: what a window holds beyond its own length.
    ssm
        Type of recurrent states, where ``--mamba-ssm-cache-dtype`` says one.
    upstream
        Whether a release of vLLM serves, and not the fork: where nothing says their
        type, some states are half as large then, and so are the blocks.
    aligned
        Whether states are kept for prefixes (``mamba_cache_mode`` is ``align``).
    speculative
        Tokens that are predicted ahead.
    checkpoints
        Blocks of a state beyond those. The fork has none; vLLM 0.32 has one for the
        prefixes of Mamba2.
    """

    tensor: int = 1
    item: int = 2
    cache_item: int = 2
    block: int = 16
    batched: int = 2048
    ssm: str = "auto"
    upstream: bool = False
    aligned: bool = False
    speculative: int = 0
    checkpoints: int = 0


@dataclass(frozen=True)
class Spec:
    """What one layer keeps in a block: ``page`` bytes for ``block`` tokens.

    ``kind`` is ``full``, ``window`` or ``state``; ``blocks`` is what a state takes.
    """

    kind: str
    page: int
    block: int
    window: int = 0
    blocks: int = 0

    def needs(self, length: int, batched: int) -> int:
        """Return the blocks of one sequence of `length` tokens at most."""
        if self.kind == "state":
            return self.blocks
        if self.kind == "window":
            kept = min(self.window - 1 + batched, length)
            # a window may begin within a block
            return -(-kept // self.block) + 1
        return -(-length // self.block)


@dataclass(frozen=True)
class Layout:
    """The groups of one card, and what a block of the pool takes there."""

    groups: tuple[Spec, ...]
    bytes_per_block: int
    batched: int
    notes: tuple[str, ...] = ()

    def blocks(self, pool: int) -> int:
        """Return how many blocks go into a pool of so many bytes."""
        return max(0, pool) // self.bytes_per_block if self.bytes_per_block else 0

    def needs(self, length: int) -> int:
        """Return the blocks that one sequence of `length` tokens takes."""
        return sum(group.needs(length, self.batched) for group in self.groups)

    def sequences(self, pool: int, length: int) -> float:
        """Return how many sequences of `length` tokens go into a pool."""
        needed = self.needs(length)
        return self.blocks(pool) / needed if needed else float("inf")

    def longest(self, pool: int, limit: int) -> int:
        """Return the longest context, up to `limit`, that goes into a pool."""
        blocks = self.blocks(pool)
        low, high = 0, max(0, limit)
        while low < high:
            middle = (low + high + 1) // 2
            if self.needs(middle) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def bytes_per_token(self, length: int) -> float:
        """Return the bytes of a long sequence, divided by its tokens."""
        return self.needs(length) * self.bytes_per_block / length


def lay_out(shape: Shape, rules: Rules, layers: range | None = None) -> Layout:
    """Return the layout of a card that has these layers (all when None).

    The groups are those of the whole model; of a card of a pipeline only its layers
    take room.
    """
    notes: list[str] = []
    specs = _specs(shape, rules, notes)
    all_specs = [spec for one in specs for spec in one]
    if not all_specs:
        return Layout((), 0, rules.batched, ("the model keeps nothing of a context",))
    here = [spec for at in (layers or range(len(specs))) for spec in specs[at]]
    if len({_sort(spec) for spec in all_specs}) == 1:
        # all layers need as many slots: one group, in which pages may differ
        group = replace(all_specs[0], page=max(s.page for s in all_specs))
        return Layout((group,), sum(s.page for s in here), rules.batched, tuple(notes))
    page = max(spec.page for spec in all_specs)
    unified = {spec: _widened(spec, page, notes) for spec in all_specs}
    counts: dict[Spec, int] = {}
    for spec in all_specs:
        counts[unified[spec]] = counts.get(unified[spec], 0) + 1
    least, most = min(counts.values()), max(counts.values())
    size = most if most < 1.5 * least else least
    groups = [s for s, n in counts.items() for _ in range(-(-n // size))]
    padding = len(groups) * size - sum(counts.values())
    if padding:
        notes.append(f"{padding} of {len(groups) * size} places for layers stay empty")
    # each stage of a pipeline holds its share of every group
    local = -(-size * len(here) // len(all_specs))
    return Layout(
        tuple(groups), page * local, rules.batched, tuple(dict.fromkeys(notes))
    )


def state_bytes(state: State, shape: Shape, rules: Rules) -> int:
    """Return what one layer's state takes on a card."""
    usual = shape.upstream_dtype if rules.upstream else shape.state_dtype
    ssm = usual if rules.ssm == "auto" else rules.ssm
    total = 0
    for part in state.parts:
        name = ssm if part.dtype == SSM else part.dtype
        size = rules.item if name == "model" else SIZES.get(name, 4)
        total += part.elements(rules.tensor, rules.speculative) * size
    return total


def _specs(shape: Shape, rules: Rules, notes: list[str]) -> list[list[Spec]]:
    block, padded = rules.block, 0
    states = [
        state_bytes(c, shape, rules) for c in shape.caches if isinstance(c, State)
    ]
    widths = [
        _width(c, rules)
        for c in shape.caches
        if isinstance(c, Attention) and not c.bytes
    ]
    if states and widths:
        # the page of attention is made as large as a state, and the state padded to it
        width = max(widths)
        block = max(block, block * -(-max(states) // (block * width)))
        padded = block * width
        if block != rules.block:
            notes.append(f"blocks of {block} tokens, so that a state goes into one")
    made: list[list[Spec]] = []
    for layer in shape.layers:
        specs = []
        for kept in layer:
            if isinstance(kept, State):
                page = padded or state_bytes(kept, shape, rules)
                count = (2 if rules.aligned else 1) + rules.speculative
                count += rules.checkpoints
                specs.append(Spec("state", page, block, blocks=count))
            else:
                kind = "window" if kept.window else "full"
                page = block * _width(kept, rules)
                specs.append(Spec(kind, page, block, window=kept.window))
        made.append(specs)
    return made


def _width(kept: Attention, rules: Rules) -> int:
    """Return the bytes of one token in one layer on one card."""
    if kept.bytes:
        return kept.bytes
    if kept.is_mla:
        return kept.key * rules.cache_item
    heads = max(1, kept.heads // rules.tensor)
    return heads * (kept.key + kept.value) * rules.cache_item


def _sort(spec: Spec) -> tuple[str, int, int]:
    """Return what layers of one group have in common."""
    return (spec.kind, spec.window, spec.blocks)


def _widened(spec: Spec, page: int, notes: list[str]) -> Spec:
    """Return a layer with pages of the common size: of more tokens, or padded."""
    if spec.page == page or spec.kind == "state":
        return replace(spec, page=page)
    if page % spec.page == 0:
        return replace(spec, page=page, block=spec.block * (page // spec.page))
    notes.append("pages of different layers do not divide each other: some are padded")
    return replace(spec, page=page)


def of_layers(counts: Sequence[int], stage: int) -> range:
    """Return the layers of one stage of a pipeline."""
    begin = sum(counts[:stage])
    return range(begin, begin + counts[stage])
