# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The command of a server, from wishes, cards and an installed vLLM's options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support import fork_parser
from tests.rig.support.made_parser import FORK, TWO, card, gpus
from tests.rig.support.plan_desk import CPU, NONE, Desk, words
from tests.rig.support.plan_desk import desk as desk
from tools.rig.base.errors import UsageError
from tools.rig.host.gpu import Gpus
from tools.rig.serve import presets, safe, volta
from tools.rig.serve.parser import Parser


def test_two_v100(desk: Desk) -> None:
    """On two V100 with NVLink the fork's rules are all that is added."""
    planned = desk.plan()
    plan = planned.plan
    assert plan.argv[:3] == ("/e/bin/python", "-I", "-m")
    assert plan.argv[3:6] == ("vllm.entrypoints.cli.main", "serve", str(desk.model))
    assert words(planned) == (
        "--dtype half --attention-backend FLASH_ATTN_V100 --host 127.0.0.1 "
        "--port 8000 --served-model-name=qwen 3 --tensor-parallel-size 2"
    )
    assert plan.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert plan.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert plan.env["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert plan.env["HF_HUB_OFFLINE"] == "1"
    assert plan.env["PATH"].startswith("/e/bin:")
    assert (plan.name, plan.served_name, plan.cards) == ("qwen-3", "qwen 3", (0, 1))
    assert (plan.cwd, plan.drain_s, plan.api_key_file) == (Path("/"), 0, None)
    assert plan.log == desk.path / "root/servers/qwen-3.log"
    assert planned.usage == () and planned.problems == ()
    assert planned.is_volta


def test_the_words_behind_win(desk: Desk) -> None:
    """An option behind the dashes takes the place of ours, and is known in the plan."""
    planned = desk.plan(
        *("-tp", "1", "--port=9001", "--dtype", "float16", "--host", "::1"),
        *("--served_model_name", "a", "b", "--shutdown-timeout", "9"),
        drain_s=60,
    )
    plan = planned.plan
    assert (plan.tensor, plan.port, plan.host) == (1, 9001, "::1")
    assert (plan.served_name, plan.name, plan.drain_s) == ("a", "a", 9)
    for served, name in (
        ("a" * 200, "a" * 120),
        ("模型 3", "模型-3"),
        ("模" * 50, "模" * 40),
        ("/..", "server"),
    ):
        assert desk.plan("--served-model-name", served).plan.name == name
    assert plan.cards == (0,)
    assert "half" not in words(planned) and "8000" not in words(planned)
    assert not any("bfloat16" in note for note in plan.notes)


def test_no_nvlink(desk: Desk) -> None:
    """Without NVLink the custom all-reduce is off, which hangs two cards otherwise."""
    planned = desk.plan(cards=gpus(card(0), card(1)))
    assert "--disable-custom-all-reduce" in words(planned)
    assert any("no NVLink joins cards 0 and 1" in note for note in planned.plan.notes)
    unknown = desk.plan(cards=gpus(card(0), card(1), links=None))
    assert any("is not known" in note for note in unknown.plan.notes)
    # asked for behind the dashes, it is the user's
    forced = desk.plan("--no-disable-custom-all-reduce", cards=gpus(card(0), card(1)))
    assert " --disable-custom-all-reduce" not in words(forced)


def test_eight_cards_in_two_groups() -> None:
    """Eight cards of which some are joined are left to the fork's own test."""
    eight = gpus(*(card(n) for n in range(8)), linked=[(0, 1)])
    all_of_them = tuple(range(8))
    ruled = volta.rules(FORK, eight, all_of_them, volta=True, mla=False)
    assert not any("--disable-custom-all-reduce" in rule.words for rule in ruled)
    apart = gpus(*(card(n) for n in range(8)))
    ruled = volta.rules(FORK, apart, all_of_them, volta=True, mla=False)
    assert any("--disable-custom-all-reduce" in rule.words for rule in ruled)


def test_latent_attention_has_its_own_backend() -> None:
    """A model with latent attention is not given the backend for plain attention."""
    ruled = volta.rules(FORK, TWO, (0, 1), volta=True, mla=True)
    assert not any("--attention-backend" in rule.words for rule in ruled)


def test_another_vllm(desk: Desk) -> None:
    """A vLLM that is not the fork is named, as it may not run on a V100 at all."""
    other = replace(FORK, backends=("FLASHINFER",), variables=frozenset())
    planned = desk.plan(parser=other)
    assert "--attention-backend" not in words(planned)
    assert any("it is not the fork" in note for note in planned.plan.notes)
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in planned.plan.env


def test_newer_cards_need_no_rules(desk: Desk) -> None:
    """On other cards than V100 nothing of the rules for V100 applies."""
    planned = desk.plan("--dtype", "bfloat16", cards=gpus(card(0, sm=90)), tensor=1)
    assert words(planned).startswith("--host")
    assert planned.problems == () and not planned.is_volta


@pytest.mark.parametrize(
    ("rest", "what", "hint", "level"),
    [
        (("--dtype", "bfloat16"), "no bfloat16", "--dtype half", "error"),
        (("--attention-backend", "flashinfer"), "needs sm_75", "V100", "error"),
        (("--kv-cache-dtype", "fp8_e4m3"), "not recommend", "fp8_e5m2", "note"),
        (("--kv-cache-dtype", "fp8"), "fp8 means fp8_e5m2", "fp8_e5m2", "note"),
    ],
)
def test_what_a_v100_cannot(
    desk: Desk, rest: tuple[str, ...], what: str, hint: str, level: str
) -> None:
    """What was asked for and a V100 cannot do is told, with what it can."""
    found = desk.plan(*rest).problems
    assert len(found) == 1
    assert what in found[0].what and hint in found[0].hint
    assert found[0].level == level


def test_the_processor_takes_no_cards(desk: Desk) -> None:
    """A vLLM for the processor gets no card and no rule for cards."""
    planned = desk.plan(parser=CPU, cards=NONE)
    assert planned.plan.cards == () and planned.problems == ()
    assert "CUDA_VISIBLE_DEVICES" not in planned.plan.env


def test_no_card_at_all(desk: Desk) -> None:
    """Without a card the reason is told; a preset is still shown as for V100."""
    planned = desk.plan(cards=NONE, preset="2x16")
    assert "no NVIDIA driver" in planned.problems[0].what
    assert "--attention-backend FLASH_ATTN_V100" in words(planned)
    assert "--attention-backend" not in words(desk.plan(cards=NONE))


def test_which_cards() -> None:
    """Free cards that NVLink joins are taken before others."""
    four = gpus(*(card(0, used=9), card(1), card(2), card(3)), linked=[(0, 1), (1, 3)])
    assert volta.choose(four, 2).indexes == (1, 3)
    assert volta.choose(four, 1).indexes == (1,)
    assert volta.choose(four, 2, "2,0").indexes == (2, 0)
    assert volta.choose(four, 2, "", "3,GPU-2a,1").indexes == (3, 2)


@pytest.mark.parametrize(
    ("count", "asked", "visible", "what"),
    [
        (2, "0,7", "", "--cards names card 7, and there are 0, 1"),
        (1, "", "MIG-1", "CUDA_VISIBLE_DEVICES names card MIG-1"),
        (4, "", "", "4 cards are wanted, and 2 are there"),
        (1, "0,1", "", "--cards names 2 cards, and 1 are wanted"),
        (2, "0,GPU-0a", "", "--cards 0,GPU-0a names a card twice"),
        (2, "", "1,1", "CUDA_VISIBLE_DEVICES=1,1 names a card twice"),
    ],
)
def test_cards_that_cannot_be(count: int, asked: str, visible: str, what: str) -> None:
    """Cards that are not there, or not as many as ranks, are told."""
    assert what in volta.choose(TWO, count, asked, visible).problems[0].what


@pytest.mark.parametrize("asked", ["x", "0;1", "0,", ",", "-1", "0,0", "1.0", "GPU-"])
@pytest.mark.parametrize(("parser", "cards"), [(FORK, TWO), (FORK, NONE), (CPU, NONE)])
def test_words_that_name_no_card(
    desk: Desk, asked: str, parser: Parser, cards: Gpus
) -> None:
    """Nonsense is a fault of the command line, whatever cards are here."""
    [problem] = desk.plan(cards=cards, parser=parser, **{"cards_": asked}).usage
    assert problem.what.startswith(f"--cards {asked} names ")


def test_cards_that_nobody_uses(desk: Desk) -> None:
    """A server on the processor takes no cards, and says so where some are named."""
    planned = desk.plan(parser=CPU, cards=NONE, cards_="0,1")
    assert planned.usage == () and planned.plan.cards == ()
    assert any("--cards is of no use" in note for note in planned.plan.notes)


def test_data_parallel_counts(desk: Desk) -> None:
    """Each replica of data parallelism has cards of its own."""
    four = gpus(*(card(n) for n in range(4)))
    assert desk.plan("-dp", "2", cards=four).plan.cards == (0, 1, 2, 3)
    assert desk.plan(pipeline=2, cards=four).plan.pipeline == 2


def test_a_key_file(tmp_path: Path) -> None:
    """A file without a key, or that others can read, is told with what to type."""
    file = tmp_path / "key"
    assert "no key in" in next(safe.of_key(file)).what
    file.write_text("secret\n")
    file.chmod(0o644)
    assert next(safe.of_key(file)).hint.startswith("chmod 600")
    file.chmod(0o600)
    assert [*safe.of_key(file)] == [] and [*safe.of_key(None)] == []


def test_foreign_code_only_when_asked(desk: Desk) -> None:
    """Code in a model's folder runs only when people say so, and then it is noted."""
    assert "trust" not in words(desk.plan(preset="4x32"))
    asked = desk.plan("--trust-remote-code")
    assert "--trust-remote-code" in words(asked)
    assert any("will be run" in note for note in asked.plan.notes)


def test_presets_in_a_row(tmp_path: Path) -> None:
    """A later preset wins, and options behind the dashes win over both."""
    desk = Desk(tmp_path, {"max_position_embeddings": 262144})
    planned = desk.plan(*("--max-num-seqs", "8"), preset="2x32,long-context", cards=TWO)
    said = words(planned)
    assert "--max-model-len 262144" in said and "auto" not in said
    assert "--max-num-batched-tokens 8096" in said and "8192" not in said
    assert said.endswith("--max-num-seqs 8")
    assert "the preset 2x32 is for cards with 32 GB" in planned.problems[0].what


def test_a_preset_is_no_longer_than_the_model(desk: Desk) -> None:
    """A preset's context longer than the model's own is left out, and noted."""
    planned = desk.plan(preset="long-context")
    assert "--max-model-len" not in words(planned)
    assert "the model's own context of 4096 tokens, not more" in planned.plan.notes


def test_a_preset_in_an_older_vllm(desk: Desk) -> None:
    """What an older vLLM does not have of a preset is left out, or done otherwise."""
    gone = ("language_model_only", "enable_prefix_caching", "shutdown_timeout")
    kept = tuple(option for option in FORK.options if option.dest not in gone)
    older = replace(FORK, options=kept)
    planned = desk.plan(parser=older, preset="text-only,long-context", drain_s=9)
    assert planned.plan.drain_s == 0
    assert any("aborts requests" in note for note in planned.plan.notes)
    assert '--limit-mm-per-prompt {"image": 0, "video": 0}' in words(planned)
    left = [note for note in planned.plan.notes if note.startswith("left out")]
    assert "--enable-prefix-caching of the preset long-context" in left[0]


def test_how_many_cards_a_preset_has(desk: Desk) -> None:
    """A preset for four cards takes four, unless people say otherwise."""
    four = gpus(*(card(n, gib=32) for n in range(4)))
    assert desk.plan(preset="4x32", cards=four).plan.tensor == 4
    assert desk.plan(preset="4x32", cards=four, tensor=2).plan.tensor == 2
    assert desk.plan(preset="4x32", cards=four, pipeline=2).plan.tensor == 2


def test_what_presets_say() -> None:
    """Each preset says what it is for, its options, its source and what it costs."""
    for preset in presets.known():
        lines = preset.lines()
        assert len(lines) == 4 and all(lines)
        assert preset.source.startswith(("README.md", "RELEASE.md"))
        assert not {"--trust-remote-code", "--host"} & {*preset.words}
        assert preset.to_json()["name"] == preset.name


@pytest.mark.parametrize(
    ("names", "what", "hint"),
    [
        ("2x61", "no preset 2x61", "--preset 2x16"),
        ("quick", "no preset quick", "--preset list"),
        ("2x16,4x32", "for different machines", "--preset 2x16"),
    ],
)
def test_presets_that_cannot_be(names: str, what: str, hint: str) -> None:
    """A preset that is not there, or two machines at once, is a fault of usage."""
    with pytest.raises(UsageError, match=what) as caught:
        presets.chosen(names)
    assert caught.value.hint == hint


def test_presets_in_the_forks_own_parser(tmp_path: Path) -> None:
    """The fork's sources have every option of every preset and of our rules."""
    source = fork_parser.source()
    if source is None:
        pytest.skip("no checkout of the fork here, and ONECAT_TEST_FORK names none")
    its = fork_parser.read(source)
    made_up = {"--window", "--no-window"}
    assert {*FORK.by_flag} - made_up <= {*its.by_flag}
    assert {*FORK.backends} <= {*its.backends}
    assert {*FORK.variables} <= {*its.variables}
    assert len(its.options) > 200 and volta.BACKEND in its.backends
    desk = Desk(tmp_path, {"max_position_embeddings": 1 << 20})
    for preset in presets.known():
        cards = gpus(*(card(n, gib=32) for n in range(4)))
        planned = desk.plan(
            *("--max-num-seqs", "2"), preset=preset.name, parser=its, cards=cards
        )
        assert planned.usage == () and planned.problems == ()
        assert not [n for n in planned.plan.notes if n.startswith("left out")]
        text = (source / preset.source.partition(",")[0]).read_text()
        assert len(text) > 1000
    volts = volta.variables_of(volta.rules(its, TWO, (0,), volta=True, mla=False))
    assert "VLLM_USE_FLASHINFER_SAMPLER" in volts


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    """A folder without a configuration still has a plan, for its faults to be told."""
    (tmp_path / "qwen 3").mkdir()
    desk = Desk.__new__(Desk)
    desk.path, desk.model = tmp_path, tmp_path / "qwen 3"
    assert desk.plan().plan.served_name == "qwen 3"
