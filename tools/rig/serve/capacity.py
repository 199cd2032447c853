# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a model goes onto the cards, and how much context beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.rig.base.errors import CannotError, UsageError, quoted
from tools.rig.serve import cache, overhead, shapes, weights
from tools.rig.serve.cache import Layout, Rules
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.foreign import shown
from tools.rig.serve.overhead import GIB, Part
from tools.rig.serve.shapes import Shape
from tools.rig.serve.weights import Weights

UTILISATION = 0.92
"""The fork's default of ``--gpu-memory-utilization`` (``vllm/config/cache.py``)."""

USABLE = 15.77 / 16
"""Of a V100's nominal memory, what CUDA gives to programs: 15.77 of 16 GiB."""

LENGTHS = (2048, 8192, 32768, 131072)
"""Contexts for which the number of sequences at once is told."""

MOST = 1 << 20
"""The longest context that is asked for where a model does not say its own."""

MEASURED = (
    "what a step takes beside weights and cache is estimated: vLLM measures it when it "
    "starts (log line 'Available KV cache memory')"
)
OTHERS = (
    "what else uses the cards: all their memory is taken as free, but for "
    f"{overhead.CONTEXT >> 20} MiB of the CUDA context"
)


@dataclass(frozen=True)
class Options:
    """How the model is to be served; names and defaults as vLLM's options.

    ``memory`` is what one card has, in bytes. ``cache_dtype`` is ``auto`` (the model's)
    or a name of ``--kv-cache-dtype``. ``upstream``: a release of vLLM serves, and not
    the fork. ``prefixes`` None is the default: off for models with states, but on for
    Qwen's in the fork. ``kv_bytes`` is the size of the cache where
    ``--kv-cache-memory-bytes`` says it. ``max_len`` 0 is the model's own.
    """

    memory: int
    tensor: int = 1
    pipeline: int = 1
    utilisation: float = UTILISATION
    cache_dtype: str = "auto"
    max_len: int = 0
    batched: int = 2048
    sequences: int = 256
    block: int = 16
    item: int = 2
    eager: bool = False
    ssm: str = "auto"
    upstream: bool = False
    prefixes: bool | None = None
    speculative: int = 0
    checkpoints: int = 0
    vision: bool = True
    kv_bytes: int | None = None
    lengths: tuple[int, ...] = LENGTHS


@dataclass(frozen=True)
class Card:
    """What one card of a stage of the pipeline holds; ``kv`` may be negative."""

    stage: int
    weights: Weights
    parts: tuple[Part, ...]
    given: int
    kv: int
    layout: Layout = field(repr=False)

    @property
    def beside(self) -> int:
        """The bytes of what is neither weights nor cache."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Capacity:
    """The answer.

    ``kv_tokens`` is what vLLM logs as its "KV cache size". ``longest`` is the longest
    context of one sequence, at most ``limit``; ``at_once`` says for each length how
    many sequences go in together. ``cannot_know`` are sentences.
    """

    options: Options
    shape: Shape = field(repr=False)
    cards: tuple[Card, ...]
    limit: int
    longest: int
    kv_tokens: int
    bytes_per_token: float
    at_once: Mapping[int, float]
    fits: bool
    why: str
    notes: tuple[str, ...]
    cannot_know: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        cards = [
            {
                "stage": card.stage,
                "weights": asdict(card.weights),
                "beside": [asdict(part) for part in card.parts],
                "given": card.given,
                "kv_bytes": max(0, card.kv),
                "block_tokens": max((g.block for g in card.layout.groups), default=0),
                "groups": len(card.layout.groups),
            }
            for card in self.cards
        ]
        return {
            "architecture": self.shape.architecture,
            "options": asdict(self.options),
            "cards": cards,
            "fits": self.fits,
            "why": self.why,
            "kv_tokens": self.kv_tokens,
            "kv_bytes_per_token": round(self.bytes_per_token, 1),
            "longest_context": self.longest,
            "context_of_the_model": self.limit,
            "sequences_at_once": {str(k): round(v, 2) for k, v in self.at_once.items()},
            "notes": list(self.notes),
            "cannot_know": list(self.cannot_know),
        }


def plan(model: ModelFolder, options: Options) -> Capacity:
    """Return what goes onto the cards, from the headers alone.

    Raises
    ------
    CannotError
        When the folder does not say enough, with what is missing.
    UsageError
        When the options cannot be.
    """
    shape = _shape(model, options)
    rules = rules_of(shape, options)
    parts = weights.partition(len(shape.layers), options.pipeline)
    held = weights.per_card(
        model.tensors.values(),
        shape,
        options.tensor,
        options.pipeline,
        draft=options.speculative > 0,
        vision=options.vision,
        itemsize=options.item,
    )
    given = int(options.memory * options.utilisation)
    cards = []
    for stage, one in enumerate(held):
        layout = cache.lay_out(shape, rules, cache.of_layers(parts, stage))
        beside = overhead.estimate(
            shape,
            tensor=options.tensor,
            layers=parts[stage],
            batched=options.batched,
            sequences=options.sequences,
            eager=options.eager,
            item=options.item,
            context=8 * (options.max_len or shape.max_len),
            block=layout.groups[0].block if layout.groups else options.block,
            second=overhead.has_second_runner(
                shape, upstream=options.upstream, quantised=bool(model.quantisation)
            ),
        )
        kv = given - one.bytes - sum(part.bytes for part in beside)
        if options.kv_bytes is not None:
            kv = options.kv_bytes
        cards.append(Card(stage, one, beside, given, kv, layout))
    return _answer(shape, options, tuple(cards), model)


def rules_of(shape: Shape, options: Options) -> Rules:
    """Return the rules by which the cache of a model is laid out.

    Raises
    ------
    UsageError
        When the type of the cache is not one whose size is known.
    """
    size = options.item
    if options.cache_dtype != "auto":
        known = cache.SIZES.get(options.cache_dtype)
        if known is None:
            raise UsageError(
                f"the size of a KV cache of type {options.cache_dtype} is not known",
                hint=f"one of auto, {', '.join(sorted(cache.SIZES))}",
            )
        size = known
    aligned = options.prefixes
    if aligned is None:
        # the fork's own default, for servers on sm_70
        qwen = shape.model_type.startswith(("qwen3_next", "qwen3_5"))
        aligned = qwen and not options.upstream
    return Rules(
        tensor=options.tensor,
        item=options.item,
        cache_item=size,
        block=options.block,
        batched=options.batched,
        ssm=options.ssm,
        upstream=options.upstream,
        aligned=aligned and shape.is_hybrid,
        speculative=options.speculative,
        checkpoints=options.checkpoints,
    )


def _shape(model: ModelFolder, options: Options) -> Shape:
    if options.tensor < 1 or options.pipeline < 1 or options.memory <= 0:
        raise UsageError("cards and their memory are counted from 1", hint="--tp 1")
    if not 0 < options.utilisation <= 1:
        raise UsageError(
            "--utilisation is a share of the memory: above 0, at most 1",
            hint=f"--utilisation {UTILISATION}",
        )
    if not model.config:
        problem = model.problems[0]
        raise CannotError(f"{problem.what}: nothing can be told", hint=problem.hint)
    if model.format != "safetensors" or not model.tensors:
        what = [p for p in model.problems if "weight" in p.what or "GGUF" in p.what]
        said = what[0] if what else model.problems[0]
        raise CannotError(f"the sizes of the weights: {said.what}", hint=said.hint)
    try:
        shape = shapes.read(model.config)
    except CannotError as exc:
        exc.hint = exc.hint or f"cat {quoted(model.path / 'config.json')}"
        raise
    if options.pipeline > len(shape.layers):
        raise UsageError(
            f"{len(shape.layers)} layers cannot be shared by {options.pipeline} stages",
            hint=f"--pp {len(shape.layers)} or fewer",
        )
    return shape


def _answer(
    shape: Shape, options: Options, cards: tuple[Card, ...], model: ModelFolder
) -> Capacity:
    limit = shape.max_len or MOST
    asked = options.max_len or limit
    # the smallest number of blocks is everybody's
    tight = min(cards, key=lambda card: card.layout.blocks(card.kv))
    layout, pool = tight.layout, tight.kv
    longest = layout.longest(pool, limit)
    served = min(asked, longest) if longest else asked
    at_once = {
        length: layout.sequences(pool, length)
        for length in sorted({*options.lengths, served})
        # what keeps nothing sets no limit
        if length <= limit and layout.groups
    }
    tokens = layout.sequences(pool, asked) * asked if layout.groups else 0.0
    fits, why = _verdict(tight, options, asked, longest)
    return Capacity(
        options=options,
        shape=shape,
        cards=cards,
        limit=limit,
        longest=longest,
        kv_tokens=int(tokens),
        bytes_per_token=layout.bytes_per_token(served) if layout.groups else 0.0,
        at_once=at_once,
        fits=fits,
        why=why,
        notes=layout.notes,
        cannot_know=_cannot_know(shape, model, options),
    )


def _verdict(
    card: Card, options: Options, asked: int, longest: int
) -> tuple[bool, str]:
    used = card.weights.bytes + card.beside
    if card.kv <= 0:
        return False, (
            f"weights and the rest take {used / GIB:.1f} GiB of the "
            f"{card.given / GIB:.1f} GiB of a card"
        )
    if options.max_len and longest < options.max_len:
        return False, f"a context of {longest} tokens is the longest, not {asked}"
    if longest < 1:
        return False, "not one block of context goes in"
    if longest < asked:
        return True, f"with --max-model-len {longest} at most, not the model's {asked}"
    return True, "with the whole context of the model"


def _cannot_know(shape: Shape, model: ModelFolder, options: Options) -> tuple[str, ...]:
    said = [MEASURED, OTHERS]
    if model.quantisation:
        method = shown(model.quantisation.get("quant_method", "?"))
        said.append(
            f"how the kernels lay out {method} weights: counted as in the files "
            "(scales that are widened for Volta add a few percent)"
        )
    if options.speculative:
        said.append("a separate draft model is not counted, only layers in this folder")
    broken = [p.what for p in model.errors]
    if broken:
        said.append(f"what is not there: {broken[0]}")
    return (*shape.unknown, *said)
