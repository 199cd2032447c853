# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How many bytes of a model each card holds: vLLM's own ways of dividing tensors.

Read in the fork: ``vllm/model_executor/layers/linear.py`` (columns, rows, replicated),
``vocab_parallel_embedding.py`` (rows padded to 64), ``fused_moe/layer.py`` (each expert
divided), ``vllm/distributed/utils.py`` (layers of a pipeline). Packed weights are
counted by the bytes that their headers name, which a repacking for Volta keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import regex as re

from tools.rig.serve.headers import Tensor
from tools.rig.serve.shapes import Attention, Shape

PADDING = 64
"""Rows to which a vocabulary is padded (``DEFAULT_VOCAB_PADDING_SIZE``)."""

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,9})\.")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|embed_tokens_per_layer|wte|word_embeddings|"
    r"tok_embeddings|embed_in|embedding|embeddings)\.weight$"
)
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|output|embed_out)\.(?:weight|qweight|bias|.*)$")
_EXPERTS = re.compile(r"\.(?:experts|block_sparse_moe\.experts)\.")
_KV = re.compile(r"\.(?:k_proj|v_proj|k_b_proj)\.")
_ROWS = re.compile(
    r"\.(?:o_proj|down_proj|w2|c_proj|out_proj|fc2|dense|dense_4h_to_h|wo)\.[^.]+$"
)
_COLUMNS = re.compile(
    r"\.(?:q_proj|k_proj|v_proj|qkv_proj|qkv|gate_proj|up_proj|gate_up_proj|w1|w3|wq|wk|"
    r"wv|c_attn|query_key_value|fc1|fc_in|c_fc|dense_h_to_4h|q_b_proj|kv_b_proj|in_proj\w*|"
    r"conv1d|conv|input_linear|output_linear|sinks|x_proj|dt_proj|q_conv1d|k_conv1d|v_conv1d|"
    r"f_b_proj|g_b_proj|g_proj)(?:\.[^.]+)?$"
)
_HEADWISE = re.compile(r"\.(?:A_log|dt_bias|D|sinks)$")
_PREDICTION = re.compile(r"(?:^|\.)(?:mtp|mtp_layers|nextn)\.")
_VISION = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|audio_tower|"
    r"multi_modal_projector|mm_projector|embed_vision|embed_audio|image_newline)\b"
)
_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))
_EXACT = re.compile(r"(?:scale\w*|A_log|e_score_correction_bias|zero_point)$")


@dataclass(frozen=True)
class Weights:
    """Bytes that one card holds.

    ``vision`` is the share of what reads pictures and sound, ``draft`` that of layers
    that predict several tokens; ``embedding`` that of the vocabulary. All are parts of
    ``bytes``.
    """

    bytes: int
    embedding: int = 0
    vision: int = 0
    draft: int = 0


def partition(layers: int, stages: int) -> list[int]:
    """Return how many layers each stage of a pipeline has (``get_pp_indices``)."""
    parts = [layers // stages] * stages
    for n in range(2, layers % stages + 2):
        parts[-n] += 1
    return parts


def layers_of(names: Iterable[str]) -> set[int]:
    """Return the numbers of the layers that tensors of these names belong to."""
    found = (_LAYER.search(name) for name in names if not _VISION.search(name))
    return {int(one[1]) for one in found if one}


def per_card(
    tensors: Iterable[Tensor],
    shape: Shape,
    tensor: int,
    pipeline: int = 1,
    *,
    draft: bool = False,
    vision: bool = True,
    itemsize: int = 2,
) -> list[Weights]:
    """Return what a card of each stage of the pipeline holds.

    Parameters
    ----------
    tensors
        All tensors of the files.
    shape
        The model.
    tensor, pipeline
        Ranks of either kind of parallelism.
    draft
        Whether the layers for speculative tokens are loaded.
    vision
        Whether what reads pictures and sound is loaded.
    itemsize
        Bytes of a number that is not quantised: 2 with ``--dtype half``.
    """
    count = len(shape.layers)
    ends: list[int] = []
    for length in partition(count, pipeline):
        ends.append((ends[-1] if ends else 0) + length)
    stages: list[dict[str, float]] = [
        {"all": 0, "embedding": 0, "vision": 0, "draft": 0} for _ in ends
    ]
    every = list(tensors)
    # a configuration may leave out that both ends are one tensor
    tied = shape.tied or not any(_is_head(one.name) for one in every)
    for one in every:
        name = one.name
        found = _LAYER.search(name)
        at = int(found[1]) if found else -1
        seen = bool(_VISION.search(name))
        ahead = not seen and (at >= count or bool(_PREDICTION.search(name)))
        if (seen and not vision) or (ahead and not draft) or _is_left_out(name, tied):
            continue
        share = _share(one, shape, tensor)
        size = _bytes(one, itemsize) * share
        if _has_latent(shape):
            size += _unfolded(one, itemsize) * share
        vocabulary = not seen and _is_vocabulary(name)
        for stage in _stages(name, at, seen, ahead, ends, tied):
            stages[stage]["all"] += size
            stages[stage]["embedding"] += size if vocabulary else 0
            stages[stage]["vision"] += size if seen else 0
            stages[stage]["draft"] += size if ahead else 0
    return [
        Weights(
            math.ceil(s["all"]),
            math.ceil(s["embedding"]),
            math.ceil(s["vision"]),
            math.ceil(s["draft"]),
        )
        for s in stages
    ]


def _stages(
    name: str, at: int, seen: bool, ahead: bool, ends: list[int], tied: bool
) -> list[int]:
    """Return the stages that hold a tensor; with tied weights first and last one do."""
    last = len(ends) - 1
    if ahead:
        return [last]
    if seen:
        return [0]
    if at >= 0:
        return [next(n for n, end in enumerate(ends) if at < end)]
    if _EMBEDDING.search(name):
        return sorted({0, last}) if tied else [0]
    return [last]


def _unfolded(one: Tensor, itemsize: int) -> int:
    """Return what latent attention keeps of a tensor beside it.

    Queries and values are folded with a projection of whole numbers: without
    quantisation that is the tensor itself, else it is taken apart once more
    (``process_weights_after_loading`` in the fork's ``mla_attention.py``).
    """
    if one.name.endswith(".kv_b_proj.qweight"):
        # eight numbers of four bits in each
        return one.elements * 8 * itemsize
    if one.name.endswith(".kv_b_proj.weight") and one.dtype not in _FLOATS:
        return one.elements * itemsize
    return 0


def _has_latent(shape: Shape) -> bool:
    return any(isinstance(c, Attention) and c.is_mla for c in shape.caches)


def _is_vocabulary(name: str) -> bool:
    return bool(_EMBEDDING.search(name)) or _is_head(name)


def _is_head(name: str) -> bool:
    return _LAYER.search(name) is None and bool(_HEAD.search(name))


def _is_left_out(name: str, tied: bool) -> bool:
    if tied and _is_head(name):
        return True
    return name.endswith((".rotary_emb.inv_freq", ".masked_bias", ".attn.bias"))


def _bytes(one: Tensor, itemsize: int) -> int:
    if one.dtype in _FLOATS and not _EXACT.search(one.name):
        return one.elements * itemsize
    return one.bytes


def _share(one: Tensor, shape: Shape, tensor: int) -> float:
    """Return the part of a tensor that one card holds."""
    name = one.name
    if _is_vocabulary(name) and not _VISION.search(name):
        rows = max(1, one.shape[0]) if one.shape else 1
        padded = -(-rows // PADDING) * PADDING
        return padded / rows / tensor if len(one.shape) > 1 else 1 / tensor
    if tensor == 1 or not one.shape or one.elements == 1:
        return 1.0
    if _EXPERTS.search(name):
        return 1 / tensor
    if ".indexer." in name or name.endswith(("_norm.weight", "norm.weight")):
        return 1.0
    if _HEADWISE.search(name):
        return 1 / tensor
    if _ROWS.search(name):
        # of a bias, and of a scale for each row, every card has all
        stem = name.rpartition(".")[2]
        whole = stem in ("bias", "g_idx") or (stem == "weight_scale" and _thin(one))
        return 1.0 if whole else 1 / tensor
    if _KV.search(name) and not _VISION.search(name):
        return 1 / min(tensor, max(1, shape.kv_heads))
    if _COLUMNS.search(name):
        return 1.0 if name.endswith(".g_idx") else 1 / tensor
    return 1.0


def _thin(one: Tensor) -> bool:
    return len(one.shape) == 1 or one.shape[-1] == 1
