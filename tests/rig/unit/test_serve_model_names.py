# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Names in a config.json that cannot be or are not known, and models without cache."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, write
from tools.rig.base.console import Console
from tools.rig.serve import capacity as planning
from tools.rig.serve import folder, model, model_names, shapes
from tools.rig.serve.capacity import Options
from tools.rig.steps import capacity

FILE = Path("/m/config.json")


def told(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Return level and text of each problem."""
    found = model_names.problems(config, FILE)
    return [(p.level, p.what.removesuffix(f" in {FILE}")) for p in found]


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        {},
        {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"},
        {
            "architectures": ["OwnForCausalLM"],
            "model_type": "own",
            "auto_map": {"A": ""},
        },
        {"architectures": ["Newer", "LlamaForCausalLM"], "quantization_config": None},
        {"quantization_config": {}, "dtype": None, "model_type": ""},
        {"dtype": {"text_config": "bfloat16"}},
    ],
)
def test_good_names(config: dict[str, Any]) -> None:
    """What is known, absent, or comes with code of its own is no problem."""
    assert told(config) == []


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "bfloat16",
        "float32",
        "half",
        "auto",
        "torch.bfloat16",
        "float8_e4m3fn",
    ],
)
def test_types_of_numbers(dtype: str) -> None:
    """Whatever torch has is a type of numbers."""
    assert told({"dtype": dtype, "text_config": {"torch_dtype": dtype}}) == []


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"architectures": [1]}, "1 among the architectures is no name"),
        ({"architectures": ["LlamaForCausalLM", {}]}, "a dict among the architectures"),
        ({"model_type": 7}, "the model_type 7 is no name"),
        ({"dtype": "nonsense"}, "the dtype nonsense is no type of numbers"),
        ({"torch_dtype": 16}, "the torch_dtype 16 is no type of numbers"),
        ({"text_config": {"dtype": "x"}}, "the dtype x is no type of numbers"),
        ({"quantization_config": "awq"}, "quantization_config is awq, not a table"),
        ({"compression_config": []}, "compression_config is a list, not a table"),
    ],
)
def test_what_cannot_be(config: dict[str, Any], what: str) -> None:
    """A server would fail with these, and so they are errors."""
    [(level, said)] = told(config)
    assert level == "error" and what in said


def test_what_nobody_knows() -> None:
    """A name that is on no list may be newer: that cannot be told from here."""
    config = {"architectures": ["NoSuchForCausalLM"], "model_type": "nosuch"}
    assert told(config) == [
        (
            "unknown",
            "no model class NoSuchForCausalLM is known here: vLLM may have none either",
        ),
        (
            "unknown",
            "the model_type nosuch is not known here: vLLM may not know it either",
        ),
    ]


def test_all_of_our_own_types_are_known() -> None:
    """What the planning treats in some way of its own is on the list as well."""
    # those whose code is in the model's folder are on no list
    own = {"AXK1", "bailing_hybrid", "bailing_moe_linear", "plamo2", "minicpm3"}
    own |= {"minimax_text_01", "phi4flash", "pangu_ultra_moe", "gte", "new"}
    ours = shapes.MLA | shapes.UNKNOWN_LAYOUT | shapes.ENCODERS
    assert ours - own - model_names.known("model_types") <= {"kimi_k2", "deepseek_mtp"}
    assert {"LlamaForCausalLM", "BertModel"} <= model_names.known("architectures")


def test_checks_tell_them(tmp_path: Path) -> None:
    """The checks before a start tell both kinds."""
    write(tmp_path, {**LLAMA, "architectures": ["NoSuch"], "dtype": "nonsense"})
    levels = {p.level: p.what for p in model.checks(folder.read(tmp_path))}
    assert "nonsense" in levels["error"] and "NoSuch" in levels["unknown"]


def test_an_encoder_keeps_nothing(tmp_path: Path) -> None:
    """A model that only encodes has no KV cache, and its whole context fits."""
    bert = {**LLAMA, "architectures": ["BertModel"], "model_type": "bert"}
    assert shapes.read(bert).caches == []
    assert shapes.read({**bert, "is_decoder": True}).caches
    write(tmp_path, bert)
    options = Options(memory=16 << 30)
    made = planning.plan(folder.read(tmp_path), options)
    assert made.fits and made.longest == made.limit
    assert (made.bytes_per_token, made.kv_tokens, made.at_once) == (0, 0, {})
    stream = io.StringIO()
    report = capacity.capacity(Console(stream, {}), tmp_path, options)
    assert "the model keeps nothing of a context" in stream.getvalue()
    assert "Infinity" not in json.dumps(report.to_json())
