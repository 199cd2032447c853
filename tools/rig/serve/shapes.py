# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a model's layers remember of a sequence, from its config.json alone.

The rules are those of the fork's ``vllm/v1/kv_cache_interface.py``,
``vllm/transformers_utils/model_arch_config_convertor.py`` and
``vllm/model_executor/models/*``; of recurrent layers see :mod:`recurrent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.rig.base.errors import CannotError
from tools.rig.serve import config_json, recurrent
from tools.rig.serve.config_json import number
from tools.rig.serve.foreign import shown
from tools.rig.serve.recurrent import State

MLA = frozenset(
    [
        "AXK1",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_mtp",
        "glm_moe_dsa",
        "glm4_moe_lite",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
        "bailing_hybrid",
    ]
)
"""Model types whose attention keeps one compressed head where ``kv_lora_rank`` is set
(``is_deepseek_mla`` in the fork's model_arch_config_convertor.py)."""

UNKNOWN_LAYOUT = frozenset(
    [
        "deepseek_v4",
        "minimax",
        "minimax_text_01",
        "plamo2",
        "zamba2",
        "bailing_moe_linear",
        "rwkv",
        "olmo_hybrid",
        "whisper",
        "t5",
        "bart",
        "mllama",
        "minicpm3",
        "phi4flash",
    ]
)
"""Model types whose memory per token follows rules that are not in here."""

ENCODERS = frozenset(
    [
        "albert",
        "bert",
        "camembert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "ernie",
        "eurobert",
        "gte",
        "modernbert",
        "mpnet",
        "new",
        "nomic_bert",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
    ]
)
"""Model types that see the whole text at once and keep nothing of it
(``EncoderOnlyAttention`` in the fork has no KV cache), unless they are decoders."""


@dataclass(frozen=True)
class Attention:
    """Keys and values of one layer for each token.

    ``heads`` is the model's number of KV heads, ``key`` and ``value`` the sizes of one
    head; of MLA there is one head and no value. ``window`` is 0 for all tokens.
    ``bytes`` is what a token takes with any type of cache (an index), else 0.
    """

    heads: int
    key: int
    value: int
    window: int = 0
    bytes: int = 0

    @property
    def is_mla(self) -> bool:
        """Whether every card holds all of it."""
        return self.value == 0


Cache = Attention | State


@dataclass(frozen=True)
class Shape:
    """A model as the planning needs it.

    ``layers`` has for each layer what it remembers, which may be nothing or two kinds.
    ``max_len`` is the context that the model was made for, 0 where it does not say.
    ``experts`` there are, of which each token takes ``chosen``, which are ``expert``
    wide. ``unfolded`` are the numbers of a key and a value that one head of latent
    attention has where it is unfolded. ``state_dtype`` is the fork's type of recurrent
    states, ``upstream_dtype`` that of vLLM's own releases. ``unknown`` are sentences
    about what could not be told.
    """

    architecture: str
    model_type: str
    layers: tuple[tuple[Cache, ...], ...]
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_len: int
    tied: bool
    experts: int
    state_dtype: str = "model"
    upstream_dtype: str = "model"
    chosen: int = 0
    expert: int = 0
    unfolded: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers keep a state instead of tokens."""
        kinds = {type(cache) for layer in self.layers for cache in layer}
        return State in kinds and Attention in kinds

    @property
    def caches(self) -> list[Cache]:
        """What all layers remember, in order."""
        return [cache for layer in self.layers for cache in layer]


def read(config: Mapping[str, Any]) -> Shape:
    """Return the shape of a model.

    Raises
    ------
    CannotError
        When numbers are missing without which nothing can be told, or are none.
    """
    inner = config_json.text(config)
    kind = config_json.word(inner.get("model_type"))
    own = {
        **config_json.DEFAULTS.get(kind, {}),
        **{k: v for k, v in inner.items() if v is not None},
    }
    named = config_json.listed(config, "architectures")
    architecture = (config_json.word(named[0]) if named else "") or kind or "?"
    count = number(
        own,
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "n_layers",
        most=config_json.LAYERS,
    ) or config_json.few(
        own,
        len(
            config_json.listed(own, "layers_block_type")
            or config_json.listed(own, "layer_types")
        ),
    )
    heads = number(
        own, "num_attention_heads", "n_head", "num_heads", most=config_json.HEADS
    )
    hidden = number(own, "hidden_size", "n_embd", "d_model")
    vocab = number(own, "vocab_size")
    unknown: list[str] = []
    has_heads = heads or recurrent.is_attention_free(kind)
    if not (count and hidden and vocab and has_heads):
        raise CannotError(
            f"the config.json of this {kind or 'model'} does not say its numbers of "
            "layers, heads, hidden size and vocabulary",
            usual="Its memory cannot be told without them.",
        )
    if kind in UNKNOWN_LAYOUT or own.get("is_encoder_decoder"):
        unknown.append(
            f"how {kind} keeps its context is not known here: the figures of the KV "
            "cache are those of plain attention"
        )
    if own.get("block_configs"):
        unknown.append("its layers differ from each other (block_configs): not counted")
    layers = _layers(own, kind, count, heads, hidden, unknown)
    return Shape(
        architecture=architecture,
        model_type=kind,
        layers=tuple(layers),
        hidden=hidden,
        intermediate=config_json.widest(own, hidden),
        heads=heads,
        kv_heads=config_json.kv_heads(own, heads),
        head_dim=config_json.head_dim(own, heads, hidden),
        vocab=vocab,
        max_len=config_json.max_len(own),
        tied=bool(config.get("tie_word_embeddings", own.get("tie_word_embeddings"))),
        experts=number(own, "num_experts", "num_local_experts", "n_routed_experts"),
        state_dtype=recurrent.dtype(own, kind),
        upstream_dtype=recurrent.dtype(own, kind, upstream=True),
        chosen=number(
            own, "num_experts_per_tok", "num_experts_per_token", "top_k_experts"
        ),
        expert=number(own, "moe_intermediate_size", "intermediate_size"),
        unfolded=number(own, "qk_nope_head_dim") + number(own, "v_head_dim"),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _layers(
    own: Mapping[str, Any],
    kind: str,
    count: int,
    heads: int,
    hidden: int,
    unknown: list[str],
) -> list[tuple[Cache, ...]]:
    plain: tuple[Cache, ...] = ()
    if heads:
        plain = _full(own, kind, heads, hidden)
    if kind in ENCODERS and not own.get("is_decoder"):
        return [()] * count
    pattern = recurrent.layers(own, kind, count)
    if pattern is not None:
        return [
            (*(plain if attends else ()), *((state,) if state else ()))
            for attends, state in pattern
        ]
    shared = number(own, "num_kv_shared_layers")
    found: list[tuple[Cache, ...]] = []
    # a chunked layer is kept whole beside full ones
    whole = ("full_attention", "attention", "chunked_attention")
    for at, name in enumerate(config_json.kinds(own, kind, count)):
        alone = config_json.overrides(own, at)
        mine = {**own, **alone} if alone else own
        if shared and at >= count - shared:
            found.append(())
        elif name == "sliding_attention" and plain:
            found.append((_windowed(mine, heads, hidden),))
        elif name in whole:
            found.append(_full(mine, kind, heads, hidden))
        else:
            odd = shown(name)
            unknown.append(f"layers of the kind '{odd}' are not known: not counted")
            found.append(())
    return found


def _full(
    own: Mapping[str, Any], kind: str, heads: int, hidden: int
) -> tuple[Cache, ...]:
    rank = number(own, "kv_lora_rank")
    if kind in MLA and rank:
        latent = Attention(1, rank + number(own, "qk_rope_head_dim"), 0)
        width = number(own, "index_head_dim")
        if not (width and own.get("index_topk")):
            return (latent,)
        # an index beside the cache: a byte a number, and a float for 128 of them
        size = width + width // 128 * 4
        return (latent, Attention(1, width, 0, bytes=size))
    size = config_json.head_dim(own, heads, hidden)
    kv = config_json.kv_heads(own, heads)
    if kind.startswith("gemma4") and not own.get("per_layer_config"):
        size = number(own, "global_head_dim") or 512
        if own.get("attention_k_eq_v"):
            kv = number(own, "num_global_key_value_heads", most=config_json.HEADS) or kv
    value = size if kind in MLA else number(own, "v_head_dim") or size
    if kind.startswith("mimo_v2"):
        return (Attention(kv, size, value),)
    return (Attention(kv, size, size),)


def _windowed(own: Mapping[str, Any], heads: int, hidden: int) -> Attention:
    size = config_json.head_dim(own, heads, hidden)
    window = number(own, "sliding_window")
    return Attention(config_json.kv_heads(own, heads), size, size, window)
