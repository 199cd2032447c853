# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a model fits, and how much context beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.logged_sizes import ON_CARD, OnCard
from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.one_card import BIG, CARD, GIB
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.serve import capacity, folder, overhead, shapes


@pytest.mark.parametrize("logged", ON_CARD, ids=lambda one: one.name)
def test_what_a_step_took_on_a_card(logged: OnCard) -> None:
    """The estimate of a step is what vLLM measured, within 10 MiB and its rounding."""
    shape = shapes.read(logged.config)
    second = overhead.has_second_runner(shape, upstream=True, quantised=False)
    assert second is (logged.name in ("llama", "qwen2"))
    activations, libraries = overhead.estimate(
        shape,
        tensor=1,
        layers=1,
        batched=2048,
        sequences=256,
        eager=True,
        context=8 * 8192,
        second=second,
    )
    assert activations.bytes / GIB == pytest.approx(logged.peak, abs=0.0149)
    assert libraries.bytes / GIB == pytest.approx(0.22, abs=0.0051)


def test_the_second_runner_of_the_fork() -> None:
    """The fork has its second runner for one dense model alone, not quantised."""
    qwen = shapes.read({**LLAMA, "architectures": ["Qwen3ForCausalLM"]})
    plain = shapes.read(LLAMA)
    ask = overhead.has_second_runner
    assert ask(qwen, upstream=False, quantised=False)
    assert not ask(qwen, upstream=False, quantised=True)
    assert not ask(plain, upstream=False, quantised=False)


def test_default_of_prefixes() -> None:
    """The fork keeps prefixes of Qwen's states; a release of vLLM none of any."""
    shape = shapes.read({**LLAMA, "model_type": "qwen3_next"})
    assert capacity.rules_of(shape, CARD).aligned
    assert not capacity.rules_of(shape, replace(CARD, upstream=True)).aligned


def test_fits(tmp_path: Path) -> None:
    """What is left is the share less weights and estimates; all parts are told."""
    found = capacity.plan(folder.read(write(tmp_path)), CARD)
    (card,) = found.cards
    assert card.given == int(16 * GIB * 0.92)
    assert card.kv == card.given - card.weights.bytes - card.beside
    assert [part.name for part in card.parts] == ["activations", "libraries", "graphs"]
    assert found.fits
    assert found.longest == found.limit == 4096
    assert found.kv_tokens == pytest.approx(card.kv / 1024, rel=0.001)
    assert found.at_once[2048] == pytest.approx(card.kv / 1024 / 2048, rel=0.001)
    assert json.loads(json.dumps(found.to_json()))["kv_bytes_per_token"] == 1024
    assert "estimated" in found.cannot_know[0]


def test_parts_follow_the_options(tmp_path: Path) -> None:
    """No graphs when eager, links with several cards, a pool when it is given."""
    model = folder.read(write(tmp_path))
    eager = capacity.plan(model, replace(CARD, eager=True, tensor=2))
    names = [part.name for part in eager.cards[0].parts]
    assert names == ["activations", "libraries", "links"]
    given = capacity.plan(model, replace(CARD, kv_bytes=GIB))
    assert given.kv_tokens == GIB // 1024
    stages = capacity.plan(model, replace(CARD, pipeline=2))
    assert [card.stage for card in stages.cards] == [0, 1]


def test_does_not_fit(tmp_path: Path) -> None:
    """61 GiB do not fit on two cards of 16; on eight they do, with a limit."""
    model = folder.read(write(tmp_path, BIG, llama_tensors(BIG)))
    two = capacity.plan(model, replace(CARD, tensor=2))
    assert not two.fits
    assert two.why.startswith("weights and the rest take")
    assert two.kv_tokens == 0
    eight = capacity.plan(model, replace(CARD, tensor=8))
    assert eight.fits
    tight = int(10.4 * GIB)
    long = capacity.plan(model, replace(CARD, tensor=8, memory=tight))
    assert long.fits
    assert "--max-model-len" in long.why
    asked = replace(CARD, tensor=8, memory=tight, max_len=long.longest + 1)
    assert not capacity.plan(model, asked).fits
    assert capacity.plan(model, replace(asked, max_len=long.longest)).fits


def test_not_one_block(tmp_path: Path) -> None:
    """A pool that holds not one block fits nothing."""
    model = folder.read(write(tmp_path))
    found = capacity.plan(model, replace(CARD, kv_bytes=10))
    assert (found.fits, found.why) == (False, "not one block of context goes in")


@pytest.mark.parametrize(
    "options",
    [
        {"tensor": 0},
        {"memory": 0},
        {"utilisation": 1.2},
        {"pipeline": 5},
        {"cache_dtype": "fp3"},
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any]) -> None:
    """Options that mean nothing are wrong usage."""
    model = folder.read(write(tmp_path))
    with pytest.raises(UsageError):
        capacity.plan(model, replace(CARD, **options))


def test_too_little_is_known(tmp_path: Path) -> None:
    """Without configuration or headers nothing is guessed."""
    with pytest.raises(CannotError, match="no config"):
        capacity.plan(folder.read(tmp_path), CARD)
    write(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model.bin")
    with pytest.raises(CannotError, match="pickles"):
        capacity.plan(folder.read(tmp_path), CARD)


def test_what_it_cannot_know(tmp_path: Path) -> None:
    """Quantised weights, drafts and missing files are said to be uncertain."""
    config = {
        **LLAMA,
        "model_type": "whisper",
        "block_configs": [1],
        "quantization_config": {"quant_method": "awq"},
    }
    model = folder.read(write(tmp_path, config))
    (tmp_path / "tokenizer.json").unlink()
    found = capacity.plan(folder.read(tmp_path), replace(CARD, speculative=2))
    said = " ".join(found.cannot_know)
    for words in ("awq", "draft", "tokenizer", "whisper", "block_configs"):
        assert words in said
    assert "tokenizer" not in " ".join(capacity.plan(model, CARD).cannot_know)
