# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Layers that keep a state of fixed size: Mamba, gated delta nets, short convolutions.

Sizes as in the fork's ``vllm/model_executor/layers/mamba/mamba_utils.py``; which layer
is of which kind as in ``vllm/model_executor/models/*``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.rig.serve.config_json import few, listed, number, word

ATTENTION_FREE = frozenset(("mamba", "mamba2", "falcon_mamba"))
"""Model types without any attention."""

SSM = "ssm"
"""The type of a recurrent state, which has an option of its own."""


@dataclass(frozen=True)
class Part:
    """One array of a state, of all cards together.

    It has ``dim`` columns, which are divided among the cards, and ``rows``.
    ``grouped`` of the columns belong to one of ``groups`` groups each; where these
    cannot be divided, cards hold more of them. ``grows``: speculative tokens add rows.
    ``dtype`` is ``model``, ``ssm`` or the name of a type.
    """

    dim: int
    rows: int
    dtype: str = "model"
    groups: int = 0
    grouped: int = 0
    grows: bool = False

    def elements(self, tensor: int, speculative: int) -> int:
        """Return how many numbers one card of `tensor` holds."""
        groups = self.groups
        if groups % tensor:
            groups += tensor - groups
        rows = self.rows + (speculative if self.grows else 0)
        return -(-(self.dim + groups * self.grouped) // tensor) * rows


@dataclass(frozen=True)
class State:
    """What one layer remembers of a sequence of any length."""

    parts: tuple[Part, ...]


Pattern = list[tuple[bool, State | None]]
"""For each layer: whether it attends, and the state that it keeps."""


def is_attention_free(kind: str) -> bool:
    """Return whether no layer of a model type attends."""
    return kind in ATTENTION_FREE


def dtype(own: Mapping[str, Any], kind: str, *, upstream: bool = False) -> str:
    """Return the type of recurrent states where no option says another one.

    A model of Qwen3.5 and Nemotron-H may name it. Without that Nemotron-H has float32,
    and others are like the model. Of gated delta nets that holds with vLLM's own
    releases alone (read in 0.25.1 and 0.32.0), while the fork has float32 for them
    (both in ``gated_delta_net_state_dtype``). On a CPU vLLM has float32 for all.

    Parameters
    ----------
    own, kind
        The model's configuration and type.
    upstream
        Whether a release of vLLM serves it, and not the fork.
    """
    named = own.get("mamba_ssm_dtype") or own.get("mamba_ssm_cache_dtype")
    if isinstance(named, str) and kind.startswith(("qwen3_5", "nemotron_h")):
        return named
    if kind.startswith("nemotron_h"):
        return "float32"
    if kind.startswith(("qwen3_next", "qwen3_5")) and not upstream:
        return "float32"
    return "model"


def layers(own: Mapping[str, Any], kind: str, count: int) -> Pattern | None:
    """Return the pattern of a model with such layers, or None for others."""
    make = _MAKERS.get(kind)
    if make is None:
        for start, maker in _MAKERS.items():
            if kind.startswith(start + "_"):
                make = maker
    return None if make is None else make(own, count)


def _gated_delta(own: Mapping[str, Any], count: int) -> Pattern:
    size = _n(own, "linear_key_head_dim")
    keys = _n(own, "linear_num_key_heads") * size
    heads, value = _n(own, "linear_num_value_heads"), _n(own, "linear_value_head_dim")
    rows = _n(own, "linear_conv_kernel_dim", 4) - 1
    state = State(
        (
            Part(2 * keys + heads * value, rows, grows=True),
            Part(heads, value * size, SSM),
        )
    )
    names = _names(own, count)
    if not names:
        every = _n(own, "full_attention_interval", 4)
        names = [
            "full_attention" if (at + 1) % every == 0 else "linear"
            for at in range(count)
        ]
    return _pattern(names, state, ("full_attention", "attention"))


def _mamba1(own: Mapping[str, Any], count: int) -> Pattern:
    width = _n(own, "intermediate_size")
    if own.get("mamba_d_state"):
        width = _n(own, "mamba_expand", 2) * _n(own, "hidden_size")
    size = _n(own, "mamba_d_state") or _n(own, "state_size", 16)
    rows = (_n(own, "mamba_d_conv") or _n(own, "conv_kernel", 4)) - 1
    state = State((Part(width, rows), Part(width, size, SSM)))
    period = _n(own, "attn_layer_period")
    if not period:
        return [(False, state)] * count
    offset = _n(own, "attn_layer_offset")
    return [
        (True, None) if at % period == offset else (False, state) for at in range(count)
    ]


def _mamba2(own: Mapping[str, Any], count: int) -> Pattern:
    state = _second(
        width=_n(own, "expand", 2) * _n(own, "hidden_size"),
        groups=_n(own, "n_groups", 1),
        heads=_n(own, "num_heads"),
        size=_n(own, "head_dim", 64),
        memory=_n(own, "state_size", 128),
        kernel=_n(own, "conv_kernel", 4),
    )
    return [(False, state)] * count


def _second(
    *, width: int, groups: int, heads: int, size: int, memory: int, kernel: int
) -> State:
    """Return the state of a layer of the second Mamba."""
    return State(
        (
            Part(width, kernel - 1, groups=groups, grouped=2 * memory, grows=True),
            Part(heads, size * memory, SSM),
        )
    )


def _mixed(own: Mapping[str, Any]) -> State:
    wide = _n(own, "mamba_expand", 2) * _n(own, "hidden_size")
    width, heads = _n(own, "mamba_d_ssm", wide), _n(own, "mamba_n_heads", 1)
    return _second(
        width=width,
        groups=_n(own, "mamba_n_groups", 1),
        heads=heads,
        size=_n(own, "mamba_d_head", width // heads),
        memory=_n(own, "mamba_d_state"),
        kernel=_n(own, "mamba_d_conv", 4),
    )


def _falcon_h1(own: Mapping[str, Any], count: int) -> Pattern:
    return [(True, _mixed(own))] * count


def _bamba(own: Mapping[str, Any], count: int) -> Pattern:
    names = _names(own, count)
    if not names:
        attends = listed(own, "attn_layer_indices")
        names = ["attention" if at in attends else "mamba" for at in range(count)]
    return _pattern(names, _mixed(own), ("attention", "full_attention"))


def _nemotron_h(own: Mapping[str, Any], count: int) -> Pattern:
    heads, size = _n(own, "mamba_num_heads"), _n(own, "mamba_head_dim", 64)
    state = _second(
        width=heads * size,
        groups=_n(own, "n_groups", 8),
        heads=heads,
        size=size,
        memory=_n(own, "ssm_state_size", 128),
        kernel=_n(own, "conv_kernel", 4),
    )
    letters = {"M": "mamba", "*": "attention"}
    pattern = own.get("hybrid_override_pattern")
    pattern = pattern if isinstance(pattern, str) else ""
    few(own, len(pattern))
    names = [letters.get(c, "mlp") for c in pattern] if pattern else _names(own, count)
    attends = ("attention", "full_attention")
    return _pattern(names, state, attends, ("mamba", "linear_attention"))


def _lfm2(own: Mapping[str, Any], count: int) -> Pattern:
    width = _n(own, "conv_dim") or _n(own, "hidden_size")
    state = State((Part(width, _n(own, "conv_L_cache", 3) - 1),))
    names = _names(own, count)
    if not names:
        attends = listed(own, "full_attn_idxs")
        names = ["full_attention" if at in attends else "conv" for at in range(count)]
    return _pattern(names, state, ("full_attention",))


def _kimi(own: Mapping[str, Any], count: int) -> Pattern:
    inner = own.get("linear_attn_config")
    inner = inner if isinstance(inner, Mapping) else {}
    heads, size = _n(inner, "num_heads"), _n(inner, "head_dim")
    conv = Part(heads * size, _n(inner, "short_conv_kernel_size", 4) - 1)
    state = State((conv, conv, conv, Part(heads, size * size, "float32")))
    # counted from 1
    linear = listed(inner, "kda_layers")
    return [(False, state) if at + 1 in linear else (True, None) for at in range(count)]


def _pattern(
    names: list[str],
    state: State,
    attention: tuple[str, ...],
    recurrent: tuple[str, ...] = (),
) -> Pattern:
    found: Pattern = []
    for name in names:
        if name in attention:
            found.append((True, None))
        else:
            keeps = not recurrent or name in recurrent
            found.append((False, state if keeps else None))
    return found


def _names(own: Mapping[str, Any], count: int) -> list[str]:
    for key in ("layer_types", "layers_block_type"):
        named = own.get(key)
        if isinstance(named, list) and len(named) >= count:
            return [word(name) for name in named[:count]]
    return []


def _n(own: Mapping[str, Any], name: str, other: int = 0) -> int:
    return number(own, name) or other


_MAKERS = {
    "qwen3_next": _gated_delta,
    "qwen3_5": _gated_delta,
    "jamba": _mamba1,
    "mamba": _mamba1,
    "falcon_mamba": _mamba1,
    "mamba2": _mamba2,
    "falcon_h1": _falcon_h1,
    "bamba": _bamba,
    "granitemoehybrid": _bamba,
    "nemotron_h": _nemotron_h,
    "lfm2": _lfm2,
    "kimi_linear": _kimi,
}
