# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which quantised models the fork runs on a V100."""

from __future__ import annotations

from typing import Any

import pytest

from tools.rig.serve import quantisation
from tools.rig.serve.quantisation import Verdict


def compressed(
    bits: int, kind: str = "int", inputs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the configuration of a model of llm-compressor."""
    weights = {"num_bits": bits, "type": kind}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "input_activations": inputs}},
    }


@pytest.mark.parametrize(
    ("said", "ok", "words"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, True, "TurboMind"),
        ({"quant_method": "awq", "w_bit": 8}, False, "only 4 bits"),
        ({"quant_method": "awq", "q_group_size": 16}, False, "groups of 16"),
        ({"quant_method": "gptq", "bits": 4, "sym": True}, True, "Marlin"),
        ({"quant_method": "gptq", "bits": 3}, False, "3 bits"),
        ({"quant_method": "gptq", "bits": 8, "sym": False}, False, "asymmetric"),
        ({"quant_method": "fp8"}, True, "FP8"),
        ({"quant_method": "mxfp4"}, None, "MXFP4"),
        ({"quant_method": "torchao"}, False, "sm_75"),
        ({"quant_method": "experts_int8"}, False, "sm_80"),
        ({"quant_method": "bitsandbytes"}, True, "bitsandbytes"),
        ({"quant_method": "quark"}, None, "scheme"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, False, "sm_89"),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}},
            True,
            "NVFP4",
        ),
        ({"quant_method": "nobody_knows"}, None, "nobody-knows"),
        ({}, None, "its method"),
        (compressed(8, "float", {"dynamic": True}), True, "FP8"),
        (compressed(4, "float"), True, "FP4"),
        (compressed(8, "int", {"num_bits": 8}), False, "need sm_75"),
        (compressed(4), False, "unless"),
        (compressed(8), False, "unless"),
        (
            {"config_groups": {}, "quant_method": "compressed-tensors"},
            None,
            "not there",
        ),
    ],
)
def test_verdicts(said: dict[str, Any], ok: bool | None, words: str) -> None:
    """Each verdict says why, and where in the fork it was read."""
    verdict = quantisation.on_sm70(said)
    assert verdict.ok is ok
    assert words in verdict.why
    assert verdict.where.startswith("vllm/model_executor/layers/quantization")


def test_hint_switches_the_kernels_on() -> None:
    """Where a variable of the fork makes it run, the hint sets it."""
    assert "COMPRESSED_TENSORS_TURBOMIND=1" in quantisation.on_sm70(compressed(4)).hint
    assert "QUANT_BACKEND=marlin" in quantisation.on_sm70(compressed(8)).hint
    for bits in (4, 8):
        # what the hint says helps, and nothing else does
        hint = quantisation.on_sm70(compressed(bits)).hint
        name, _, value = hint.removeprefix("export ").partition("=")
        assert quantisation.on_sm70(compressed(bits), {name: value}).ok is True
        assert quantisation.on_sm70(compressed(bits), {name: "0"}).ok is False
    turbomind = {"VLLM_SM70_QUANT_BACKEND": "turbomind"}
    assert quantisation.on_sm70(compressed(4), turbomind).ok is True
    assert quantisation.on_sm70(compressed(8), turbomind).ok is False


def test_several_groups() -> None:
    """The worst of several groups decides."""
    said = compressed(4, "float")
    said["config_groups"]["group_1"] = {"weights": {"num_bits": 8, "type": "int"}}
    verdict = quantisation.on_sm70(said)
    assert verdict == Verdict(False, verdict.why, verdict.where, verdict.hint)


def test_method_without_a_name() -> None:
    """Groups without a name are those of llm-compressor."""
    said = compressed(4, "float")
    del said["quant_method"]
    assert quantisation.method(said) == "compressed-tensors"


def test_groups_that_are_none() -> None:
    """Words instead of groups and numbers do not end it."""
    said = compressed(4)
    said["config_groups"]["group_0"] = {"weights": "x"}
    assert quantisation.on_sm70(said).ok is False
    said["config_groups"]["group_0"] = {"weights": {"num_bits": [1], "type": {}}}
    assert "a list-bit" in quantisation.on_sm70(said).why
