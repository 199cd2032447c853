# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a model's configuration, its tensors and the cards agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tools.rig.serve import folder, foreign, model
from tools.rig.serve.folder import INDEX


def test_texts_of_a_model_are_escaped(tmp_path: Path) -> None:
    """Words from a model's files cannot move the cursor of a terminal."""
    own = {**LLAMA, "quantization_config": {"quant_method": "\x1b[2Jx\u202e"}}
    write(tmp_path, own)
    mapped = {"weight_map": {"a": "\x1b]0;y\x07\ud800\U000e0001"}}
    (tmp_path / INDEX).write_text(json.dumps(mapped))
    words = [f"{p.what}{p.hint}" for p in model.checks(folder.read(tmp_path))]
    assert all(text.isprintable() for text in words)
    assert "\\x1b]0;y\\x07\\ud800\\U000e0001" in words[0]
    assert "\\x1b[2jx\\u202e" in words[-1]
    assert foreign.shown("y" * 300) == "y" * 197 + "..."
    assert foreign.shown({"a": 1}) == "a dict"


def test_heads_and_cards(tmp_path: Path) -> None:
    """Heads must be divided by the cards, or copied to them evenly."""
    found = folder.read(write(tmp_path))
    assert model.checks(found, 1) == []
    three = model.checks(found, 3)
    assert "8 attention heads cannot be divided by --tp 3" in three[0].what
    assert three[0].hint == "one of --tp 1, 2, 4, 8"
    (copied,) = model.checks(found, 4)
    assert copied.level == "note"
    assert "held by 2 cards" in copied.what
    assert "4 layers cannot be shared by 5" in model.checks(found, 1, 5)[0].what


def test_key_heads_and_cards(tmp_path: Path) -> None:
    """Key heads that can neither be divided nor copied evenly are a problem."""
    many = {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 6}
    found = folder.read(write(tmp_path, many, llama_tensors(many)))
    assert "6 key and value heads cannot be divided" in model.checks(found, 4)[0].what
    few = {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 3}
    found = folder.read(write(tmp_path, few, llama_tensors(few)))
    assert "is no multiple of the 3 key" in model.checks(found, 4)[0].what
    odd = {**LLAMA, "vocab_size": 701}
    found = folder.read(write(tmp_path, odd, llama_tensors(odd)))
    assert "padded to 704" in model.checks(found, 2)[0].what


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_key_value_heads", 4, "4 key heads of 32"),
        ("num_attention_heads", 16, "16 heads of 32"),
        ("vocab_size", 900, "a vocabulary of 900"),
        ("num_hidden_layers", 5, "no tensor belongs to layer 4"),
    ],
)
def test_config_against_tensors(
    tmp_path: Path, key: str, value: int, words: str
) -> None:
    """A number in config.json that the tensors contradict is found at once."""
    write(tmp_path, {**LLAMA, key: value}, llama_tensors())
    problems = model.checks(folder.read(tmp_path))
    assert words in problems[0].what
    assert problems[0].hint.startswith("cat ")


def test_config_that_says_too_little(tmp_path: Path) -> None:
    """Without layers and heads there is one problem more, and no end."""
    write(tmp_path, {"model_type": "llama"})
    assert "does not say" in model.checks(folder.read(tmp_path))[0].what
    (tmp_path / "config.json").unlink()
    assert "no config.json" in model.checks(folder.read(tmp_path))[0].what


def test_code_of_its_own(tmp_path: Path) -> None:
    """A model that brings code is noted: it is never run unasked."""
    write(tmp_path, {**LLAMA, "auto_map": {"AutoModel": "x.Y"}})
    (note,) = model.checks(folder.read(tmp_path))
    assert (note.level, "--trust-remote-code" in note.what) == ("note", True)


def test_quantised_for_volta(tmp_path: Path) -> None:
    """What a V100 cannot run is a problem there, and on no other card."""
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "torchao"}})
    found = folder.read(tmp_path)
    assert "a V100 cannot run it" in model.checks(found)[0].what
    assert model.checks(found, sm=80) == []
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "new"}})
    assert model.checks(folder.read(tmp_path))[0].level == "unknown"
    write(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "awq"}})
    assert model.checks(folder.read(tmp_path)) == []
