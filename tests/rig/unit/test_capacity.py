# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a model fits, and how much context beside it."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.logged_sizes import LOGGED, ON_CARD, Logged, OnCard
from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.host.gpu import Card, Gpus
from tools.rig.serve import cache, capacity, folder, overhead, shapes
from tools.rig.serve.cache import Rules
from tools.rig.serve.capacity import Options
from tools.rig.steps import capacity as step

GIB = 1 << 30
CARD = Options(memory=16 * GIB)

BIG: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
"""A model of 32 B parameters: 61 GiB with 16 bits each."""


def layout(config: Mapping[str, Any], **rules: Any) -> cache.Layout:
    """Return the layout of a made model."""
    return cache.lay_out(shapes.read({**LLAMA, **config}), Rules(**rules))


@pytest.mark.parametrize("logged", LOGGED, ids=lambda one: one.name)
def test_as_vllm_logs(logged: Logged) -> None:
    """The size of the cache is what vLLM itself wrote into its log.

    On a CPU it has float32 for all recurrent states.
    """
    rules = Rules(
        tensor=logged.tensor,
        cache_item=logged.cache_item,
        block=logged.block,
        batched=logged.batched,
        ssm="float32",
        aligned=True,
        checkpoints=logged.checkpoints,
    )
    found = cache.lay_out(shapes.read(logged.config), rules)
    tokens = found.sequences(GIB, logged.length) * logged.length
    assert tokens == pytest.approx(logged.tokens, rel=0.0001)


@pytest.mark.parametrize("logged", ON_CARD, ids=lambda one: one.name)
def test_as_vllm_logs_on_a_card(logged: OnCard) -> None:
    """On a card a whole number of blocks makes exactly the logged tokens."""
    shape = shapes.read(logged.config)
    found = cache.lay_out(shape, Rules(upstream=True))
    assert found.groups[0].block == logged.block
    needs = found.needs(8192)
    count = round(logged.tokens * needs / 8192)
    assert int(count / needs * 8192) == logged.tokens
    pool = count * found.bytes_per_block / GIB
    # the log says two digits
    assert pool == pytest.approx(logged.pool, abs=0.0051)


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


def test_as_the_fork_logged_on_a_v100() -> None:
    """On V100s the fork logged the same for Qwen3.6-27B-FP8 on two cards.

    Its docs/design/sm70_v100_migration_control.md, entry of 2026-06-20: 13.86 GiB for
    the cache, 338,212 tokens with a maximum of 8,192, no prefixes kept.
    """
    qwen = {
        **{"model_type": "qwen3_5_text", "num_hidden_layers": 64},
        **{"num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 48},
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
    }
    found = layout(qwen, tensor=2)
    assert found.groups[0].block == 784
    tokens = found.sequences(int(13.86 * GIB), 8192) * 8192
    assert tokens == pytest.approx(338212, rel=0.005)


def test_bytes_of_a_token() -> None:
    """Keys and values of all layers, divided by the cards, halved by 8 bits."""
    assert layout({}).bytes_per_block == 16 * 2 * 2 * 32 * 2 * 4
    assert layout({}, tensor=2).bytes_per_block == 16 * 2 * 1 * 32 * 2 * 4
    assert layout({}, cache_item=1).bytes_per_block == 16 * 2 * 2 * 32 * 1 * 4
    # with more cards than key heads a head is still a head
    assert layout({}, tensor=8) == layout({}, tensor=2)


def test_latent_attention() -> None:
    """MLA keeps one row that no card can divide, and perhaps an index beside it."""
    mla = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert layout(mla, tensor=2).bytes_per_block == 16 * 576 * 2 * 4
    index = {**mla, "index_head_dim": 128, "index_topk": 2048}
    assert layout(index).bytes_per_block == 16 * (576 * 2 + 132) * 4


def test_longest_context() -> None:
    """The longest context takes all blocks and no more."""
    found = layout({})
    pool = 100 * found.bytes_per_block
    assert found.longest(pool, 1 << 20) == 1600
    assert found.longest(pool, 1000) == 1000
    assert found.longest(-5, 1000) == 0
    assert found.sequences(pool, 800) == 2


def test_states_without_prefixes() -> None:
    """A state takes one block, two where prefixes are kept, more with drafts."""
    qwen = {
        "model_type": "qwen3_next",
        "linear_num_value_heads": 8,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    }
    one = layout({**qwen, "num_hidden_layers": 4})
    assert one.needs(1) == 1 + 3
    assert layout({**qwen}, aligned=True).needs(1) == 1 + 3 * 2
    assert layout({**qwen}, speculative=2).needs(1) == 1 + 3 * 3
    # a state of float32: 3 rows of 1024 numbers beside it
    half = layout(qwen, ssm="float16")
    assert half.groups[0].block < one.groups[0].block
    assert "so that a state goes into one" in one.notes[0]


def test_pages_that_do_not_divide() -> None:
    """Pages of layers that do not divide each other are padded, and it is said."""
    gemma = {
        "model_type": "gemma4_text",
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "global_head_dim": 80,
    }
    assert "do not divide" in layout(gemma).notes[0]


def test_stages_of_a_pipeline() -> None:
    """A stage has room for its own layers alone, of each kind its share."""
    shape = shapes.read(LLAMA)
    half = cache.lay_out(shape, Rules(), range(0, 2))
    assert half.bytes_per_block * 2 == layout({}).bytes_per_block


def test_no_cache_at_all() -> None:
    """A model that keeps nothing has no cache to run out of."""
    config = {**LLAMA, "layer_types": ["strange"] * 4}
    shape = shapes.read(config)
    found = cache.lay_out(shape, Rules())
    assert found.groups == ()
    assert found.sequences(GIB, 100) == float("inf")
    assert "not known" in shape.unknown[0]


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


def shown(path: Path, **options: Any) -> tuple[step.Report, str]:
    """Run the step and return its report and its words."""
    stream = io.StringIO()
    words = {"memory": "16", "tp": "2", **options}
    kind = words.pop("cache_dtype", "")
    report = step.capacity(
        Console(stream, env={}), path, step.options_for(**words), cache_dtype=kind
    )
    return report, stream.getvalue()


def test_step_fits(tmp_path: Path) -> None:
    """People see each part, both types of cache, and the verdict."""
    report, text = shown(write(tmp_path))
    assert report.exit_code == ExitCode.OK
    assert report.to_json()["fits"] is True
    assert report.fitting == 2
    for words in ("weights", "fp8_e5m2", "KiB a token", "+ fits", "15.77 GiB"):
        assert words in text
    _, one = shown(tmp_path, cache_dtype="auto", pp="2")
    assert "fp8" not in one
    assert "(stage 1)" in one


def test_step_says_what_would_fit(tmp_path: Path) -> None:
    """Where it does not fit, the number of cards is named with which it would."""
    path = write(tmp_path, BIG, llama_tensors(BIG))
    report, text = shown(path)
    assert report.exit_code == ExitCode.CANNOT
    assert "x does not fit" in text
    assert text.endswith("hint: --tp 8\n")
    report, text = shown(path, memory="2")
    assert report.fitting == 0
    assert "fewer bits" in text


def test_step_with_a_broken_model(tmp_path: Path) -> None:
    """What is missing makes it unfit, and is said with a hint."""
    write(tmp_path, shards=2)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    report, text = shown(tmp_path)
    assert report.exit_code == ExitCode.CANNOT
    assert "missing" in text
    assert "hint: ls -l" in text
    (tmp_path / "config.json").unlink()
    with pytest.raises(CannotError):
        shown(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        {"memory": "lots"},
        {"memory": "0"},
        {"memory": "nan"},
        {"memory": "16", "tp": "1.5"},
        {"memory": "16", "max_len": "-4"},
        {"memory": "16", "utilisation": "inf"},
    ],
)
def test_words_that_are_no_numbers(words: dict[str, str]) -> None:
    """What is no number above nothing is wrong usage, and names its flag."""
    with pytest.raises(UsageError, match="^--"):
        step.options_for(**words)


def test_memory_of_the_cards_here() -> None:
    """Without a word the smallest card of this machine counts, or none is guessed."""
    cards = [
        Card(n, "Tesla V100", "", "", 70, size, None, None)
        for n, size in enumerate((32 * GIB, 16 * GIB, None))
    ]
    found = step.options_for(gpus=lambda: Gpus("ok", cards=tuple(cards)))
    assert found.memory == int(15.77 * GIB)
    with pytest.raises(UsageError, match="no driver") as caught:
        step.options_for(gpus=lambda: Gpus("absent", "no driver"))
    assert "--memory 16" in caught.value.hint


def test_200_shards_in_a_second(tmp_path: Path) -> None:
    """The whole answer for a model of 200 shards takes less than a second."""
    config = {**BIG, "num_hidden_layers": 200}
    path = write(tmp_path, config, llama_tensors(config), shards=200)
    took = []
    for _ in range(3):
        # time of this process alone: other work on this machine is none of ours
        start = time.process_time()
        report, _ = shown(path, tp="8", memory="80")
        took.append(time.process_time() - start)
    assert len(report.model.shards) == 200
    assert min(took) < 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_step_with_a_pipe(tmp_path: Path, name: str) -> None:
    """A pipe in the place of a file ends the step with its name, and at once."""
    write(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(CannotError, match=rf"{name}.* not a regular file"):
        step.capacity(Console(io.StringIO()), tmp_path, CARD)


def test_step_with_an_empty_config(tmp_path: Path) -> None:
    """A configuration without a word in it is an expected failure."""
    write(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CannotError, match="neither architectures"):
        step.capacity(Console(io.StringIO()), tmp_path, CARD)


def test_step_with_a_shard_that_holds_nothing(tmp_path: Path) -> None:
    """A second shard without tensors is found, whatever else would fit."""
    write(tmp_path)
    (tmp_path / "b.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert not step.capacity(Console(io.StringIO()), tmp_path, CARD).fits
