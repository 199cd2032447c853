# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which quantised models run on a V100 (sm_70), read in the fork's sources.

Every entry names the place in the fork that decides. vLLM refuses a method whose
``get_min_capability`` is above 70 (``vllm/config/vllm.py``); the fork lowers some of
them to 70 where its own kernels are switched on, which they are by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.rig.serve.foreign import shown

_FOLDER = "vllm/model_executor/layers/quantization"


@dataclass(frozen=True)
class Verdict:
    """Whether a method runs on sm_70; ``ok`` is None where the sources do not tell.

    ``where`` is the file of the fork that says it; ``hint`` what makes it run.
    """

    ok: bool | None
    why: str
    where: str
    hint: str = ""


def method(quantisation: Mapping[str, Any]) -> str:
    """Return the name of a method as vLLM spells it; empty for none."""
    name = shown(quantisation.get("quant_method") or "").lower().replace("_", "-")
    inner = quantisation.get("quantization")
    if isinstance(inner, Mapping) and name in ("", "modelopt"):
        quantisation = {**quantisation, **inner}
    if name == "modelopt":
        return f"modelopt {shown(quantisation.get('quant_algo', ''))}".strip().lower()
    if not name and quantisation.get("config_groups"):
        return "compressed-tensors"
    return name


def on_sm70(
    quantisation: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> Verdict:
    """Return whether the fork runs a quantised model on a V100.

    Parameters
    ----------
    env
        The variables that the server gets, of which some switch kernels on.
    """
    name = method(quantisation)
    if name == "compressed-tensors":
        return _compressed(quantisation, env or {})
    if name == "awq":
        return _awq(quantisation)
    if name in ("gptq", "auto-gptq", "gptq-marlin"):
        return _gptq(quantisation)
    found = _TABLE.get(name)
    if found is None:
        return Verdict(None, f"nothing is known of {name or 'its method'}", _FOLDER)
    return found


def _awq(quantisation: Mapping[str, Any]) -> Verdict:
    where = f"{_FOLDER}/awq.py"
    bits = _number(quantisation, "bits", "w_bit", other=4)
    group = _number(quantisation, "group_size", "q_group_size", other=128)
    if bits != 4:
        return Verdict(False, f"AWQ of {bits} bits: only 4 bits are supported", where)
    if group not in (32, 64, 128):
        return Verdict(
            False, f"AWQ with groups of {group}: Volta's kernel has 32, 64, 128", where
        )
    return Verdict(True, "AWQ, by TurboMind kernels (VLLM_SM70_AWQ_TURBOMIND)", where)


def _gptq(quantisation: Mapping[str, Any]) -> Verdict:
    where = f"{_FOLDER}/auto_gptq.py"
    bits = _number(quantisation, "bits", other=4)
    if bits not in (4, 8):
        return Verdict(False, f"GPTQ of {bits} bits: only 4 and 8 are supported", where)
    if quantisation.get("sym") is False:
        return Verdict(False, "asymmetric GPTQ is not supported", where)
    return Verdict(True, "GPTQ, by the fork's Marlin kernels for sm_70", where)


def _compressed(quantisation: Mapping[str, Any], env: Mapping[str, str]) -> Verdict:
    where = f"{_FOLDER}/compressed_tensors/compressed_tensors.py"
    groups = quantisation.get("config_groups")
    verdicts = [
        _scheme(group, where, env)
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping)
    ]
    bad = [v for v in verdicts if v.ok is not True]
    if not verdicts:
        return Verdict(None, "its config_groups are not there", where)
    return bad[0] if bad else verdicts[0]


def _scheme(group: Mapping[str, Any], where: str, env: Mapping[str, str]) -> Verdict:
    """Return the verdict of one scheme of compressed-tensors."""
    weights = group.get("weights")
    weights = weights if isinstance(weights, Mapping) else {}
    inputs = group.get("input_activations")
    bits, kind = weights.get("num_bits"), shown(weights.get("type") or "int")
    bits = bits if isinstance(bits, int) else shown(bits)
    place = where.rpartition("/")[0] + "/schemes/compressed_tensors_"
    if kind == "float" and bits == 8:
        return Verdict(
            True, "FP8 weights, read as 16 bits (w8a16)", f"{place}w8a16_fp8.py"
        )
    if kind == "float" and bits == 4:
        return Verdict(
            True, "FP4 weights, by TurboMind kernels", f"{place}w4a16_nvfp4.py"
        )
    if inputs:
        return Verdict(
            False,
            f"weights and inputs of {bits}-bit integers need sm_75",
            f"{place}w8a8_int8.py",
        )
    chosen = env.get("VLLM_SM70_QUANT_BACKEND", "auto").strip().lower()
    switched = env.get("VLLM_SM70_COMPRESSED_TENSORS_TURBOMIND", "0").strip() == "1"
    turbomind = bits == 4 and (switched or chosen == "turbomind")
    if chosen == "marlin" or turbomind:
        kernels = "Marlin" if chosen == "marlin" else "TurboMind"
        return Verdict(
            True,
            f"{bits}-bit integer weights, by {kernels} kernels",
            f"{place}wNa16.py",
        )
    return Verdict(
        False,
        f"{bits}-bit integer weights of compressed-tensors need sm_75, unless the "
        "fork's own kernels are switched on",
        f"{place}wNa16.py",
        "export VLLM_SM70_COMPRESSED_TENSORS_TURBOMIND=1"
        if bits == 4
        else "export VLLM_SM70_QUANT_BACKEND=marlin",
    )


def _number(quantisation: Mapping[str, Any], *names: str, other: int) -> int:
    for name in names:
        value = quantisation.get(name)
        if isinstance(value, int):
            return value
    return other


def _no(why: str, file: str) -> Verdict:
    return Verdict(False, why, f"{_FOLDER}/{file}")


def _yes(why: str, file: str) -> Verdict:
    return Verdict(True, why, f"{_FOLDER}/{file}")


_TABLE = {
    "fp8": _yes("FP8 (experimental on V100)", "fp8.py"),
    "awq-marlin": _yes("AWQ, by Marlin kernels", "awq_marlin.py"),
    "moe-wna16": _yes("4 or 8 bits for experts", "moe_wna16.py"),
    "bitsandbytes": _yes("bitsandbytes", "bitsandbytes.py"),
    "gguf": _yes("GGUF", "gguf.py"),
    "inc": _yes("AutoRound", "inc.py"),
    "auto-round": _yes("AutoRound", "inc.py"),
    "mxfp4": Verdict(
        None,
        "MXFP4: its class wants sm_80 and bfloat16, though its kernels for experts "
        "have a path for sm_70",
        f"{_FOLDER}/mxfp4.py",
    ),
    "quark": Verdict(None, "depends on its scheme", f"{_FOLDER}/quark/quark.py"),
    "modelopt nvfp4": _yes("NVFP4, by TurboMind kernels", "modelopt.py"),
    "modelopt w4a16-nvfp4": _yes("NVFP4, by TurboMind kernels", "modelopt.py"),
    "modelopt fp8": _no("FP8 of ModelOpt needs sm_89", "modelopt.py"),
    "modelopt mxfp8": _no("MXFP8 needs sm_80", "modelopt.py"),
    "modelopt mixed_precision": _no("mixed precision needs sm_89", "modelopt.py"),
    "experts-int8": _no("needs sm_80", "experts_int8.py"),
    "fbgemm-fp8": _no("needs sm_80", "fbgemm_fp8.py"),
    "fp-quant": _no("needs sm_100", "fp_quant.py"),
    "torchao": _no("needs sm_75", "torchao.py"),
    "humming": _no("needs sm_75", "humming.py"),
}
