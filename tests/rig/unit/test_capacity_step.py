# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``capacity``: what people see of a model that fits, or does not."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.one_card import BIG, CARD, GIB
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.host.gpu import Card, Gpus
from tools.rig.serve import model as models
from tools.rig.steps import capacity as step


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


def test_step_says_which_context_would_fit(tmp_path: Path) -> None:
    """Where only the context that was asked for is too long, a shorter one is named."""
    report, text = shown(write(tmp_path), max_len="999999999")
    longest = report.plans[0].longest
    assert report.exit_code == ExitCode.CANNOT and longest > 0
    assert text.endswith(f"hint: --max-len {longest}\n")
    assert shown(tmp_path, max_len=str(longest))[0].fits


@pytest.mark.parametrize(
    ("words", "hint"),
    [({"pp": "99"}, "or fewer"), ({"utilisation": "2"}, "--utilisation 0.92")],
)
def test_step_says_what_could_be(
    tmp_path: Path, words: dict[str, str], hint: str
) -> None:
    """An option that cannot be is told with one that can."""
    with pytest.raises(UsageError) as caught:
        shown(write(tmp_path), **words)
    assert hint in caught.value.hint


def test_step_names_the_file_that_says_too_little(tmp_path: Path) -> None:
    """Numbers that are missing or none are told with the file that should have them."""
    for value in ("many", None):
        path = write(tmp_path, {**LLAMA, "num_hidden_layers": value})
        with pytest.raises(CannotError) as caught:
            shown(path)
        assert caught.value.hint == f"cat {tmp_path}/config.json"
        what = caught.value.what
        [problem] = [p for p in models.checks(models.read(path)) if p.what == what]
        assert problem.hint == caught.value.hint


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
