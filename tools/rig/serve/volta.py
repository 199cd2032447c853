# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which cards a server takes, and what a V100 (sm_70) wants; pure rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import regex as re

from tools.rig.base.console import size
from tools.rig.host.gpu import Card, Gpus
from tools.rig.serve.flags import Read
from tools.rig.serve.foreign import shown
from tools.rig.serve.parser import Parser
from tools.rig.serve.problem import Problem

SM = 70
BACKEND = "FLASH_ATTN_V100"
"""The fork's attention for V100 (``vllm/v1/attention/backends/registry.py``)."""

_NAME = re.compile(r"[0-9]{1,4}|(?:GPU|MIG)-[\w/-]+")
_BF16 = ("bfloat16", "bf16")
_FEW = 512 << 20
"""Bytes on a card that do not count as use: a driver's own, or a desktop's."""


@dataclass(frozen=True)
class Rule:
    """Options and variables that follow from the cards, and why."""

    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Chosen:
    """The cards of a server, and what was wrong with what was asked."""

    cards: tuple[Card, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def indexes(self) -> tuple[int, ...]:
        """Their indexes as NVML counts."""
        return tuple(card.index for card in self.cards)

    @property
    def is_volta(self) -> bool:
        """Whether one of them is a V100."""
        return any(card.sm == SM for card in self.cards)


def unreadable(asked: str) -> Problem | None:
    """Return what is wrong with words that name cards, whatever cards are here."""
    words = [word.strip() for word in asked.split(",")]
    odd = next((word for word in words if not _NAME.fullmatch(word)), None)
    twice = len({*words}) < len(words)
    if not asked or (odd is None and not twice):
        return None
    why = "names one twice" if odd is None else f"names no card with {shown(odd)!r}"
    what = f"--cards {shown(asked)} {why}: indexes or UUIDs are wanted, with commas"
    return Problem(what, "--cards 0,1")


def choose(gpus: Gpus, count: int, asked: str = "", visible: str = "") -> Chosen:
    """Choose cards: those that are asked for, else free ones that NVLink joins.

    Parameters
    ----------
    count
        How many.
    asked
        Indexes with commas, as typed.
    visible
        ``CUDA_VISIBLE_DEVICES``: indexes or the beginnings of UUIDs.
    """
    if gpus.state != "present":
        what = f"no card to serve on: {gpus.reason or gpus.state}"
        return Chosen(problems=(Problem(what, "invoke doctor"),))
    words = [word.strip() for word in (asked or visible).split(",") if word.strip()]
    named = [_named(gpus, word) for word in words]
    for word, card in zip(words, named, strict=True):
        if card is None:
            there = ", ".join(str(one.index) for one in gpus.cards)
            source = "--cards" if asked else "CUDA_VISIBLE_DEVICES"
            problem = Problem(
                f"{source} names card {word}, and there are {there}",
                f"--cards {_some(gpus.cards, count)}",
            )
            return Chosen(problems=(problem,))
    pool = tuple(card for card in named if card is not None) or gpus.cards
    if len({card.index for card in pool}) < len(pool):
        source = f"--cards {asked}" if asked else f"CUDA_VISIBLE_DEVICES={visible}"
        what = f"{source} names a card twice"
        return Chosen(problems=(Problem(what, f"--cards {_some(gpus.cards, count)}"),))
    if len(pool) < count:
        what = f"{count} cards are wanted, and {len(pool)} are there"
        return Chosen(pool, (Problem(what, f"--tp {len(pool)}"),))
    if asked and len(pool) > count:
        what = f"--cards names {len(pool)} cards, and {count} are wanted"
        hint = f"--cards {_some(pool, count)}, or --tp {len(pool)}"
        return Chosen(pool, (Problem(what, hint),))
    if words:
        return Chosen(pool[:count])
    best = min(
        itertools.combinations(pool, count), key=lambda some: _badness(gpus, some)
    )
    return Chosen(best)


def without_nvlink(gpus: Gpus, cards: Iterable[int]) -> list[tuple[int, int, bool]]:
    """Return pairs of these cards that no NVLink joins, and whether that is known."""
    wanted = set(cards)
    return [
        (pair.a, pair.b, pair.links is not None)
        for pair in gpus.pairs
        if {pair.a, pair.b} <= wanted and not pair.links
    ]


def rules(
    parser: Parser, gpus: Gpus, cards: tuple[int, ...], *, volta: bool, mla: bool
) -> list[Rule]:
    """Return what follows from the cards.

    Parameters
    ----------
    volta
        Whether they are V100.
    mla
        Whether the model has latent attention, for which the fork has other backends.
    """
    found = []
    if cards:
        # CUDA's own order is by speed; NVML's, and ours, is by bus
        order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        seen = ("CUDA_VISIBLE_DEVICES", ",".join(map(str, cards)))
        found.append(Rule(env=(order, seen)))
    if volta:
        found += _for_volta(parser, mla)
    apart = without_nvlink(gpus, cards)
    flag = "--disable-custom-all-reduce"
    # the fork has its own way for eight cards in two groups, and tests it itself
    if apart and parser.has(flag) and not (len(cards) == 8 and _some_linked(gpus)):
        a, b, is_known = apart[0]
        why = (
            f"no NVLink joins cards {a} and {b}"
            if is_known
            else f"whether NVLink joins cards {a} and {b} is not known"
        )
        note = f"{flag}: {why}, and there the custom all-reduce can hang both"
        found.append(Rule((flag,), note=note))
    return found


def objections(read: Read) -> list[Problem]:
    """Return what a V100 cannot do of what was asked."""
    found = []
    dtype = read.last("dtype")
    if dtype is not None and dtype.value in _BF16:
        found.append(Problem("a V100 has no bfloat16", "--dtype half"))
    backend = read.last("attention_backend")
    said = backend.value.upper() if backend is not None else ""
    if said.startswith("FLASHINFER") and said != "FLASHINFER_SM70":
        what = f"{said} needs sm_75, and a V100 has sm_70"
        found.append(Problem(what, f"--attention-backend {BACKEND}"))
    cache = read.last("kv_cache_dtype")
    if cache is not None and cache.value in ("fp8_e4m3", "fp8"):
        what = (
            "the fork's README does not recommend fp8_e4m3 for V100"
            if cache.value == "fp8_e4m3"
            else "fp8 means fp8_e5m2 in the fork on a V100, and fp8_e4m3 elsewhere"
        )
        found.append(Problem(what, "--kv-cache-dtype fp8_e5m2", "note"))
    return found


def in_use(card: Card, share: float) -> Problem | None:
    """Return why a card has not the free memory that vLLM will ask for.

    vLLM refuses to start when less than ``--gpu-memory-utilization`` of all memory is
    free.

    Parameters
    ----------
    share
        That share, from 0 to 1.
    """
    if card.total is None or card.used is None:
        what = f"how much of card {card.index} is free is not known"
        return Problem(what, "nvidia-smi", "unknown")
    free, wanted = card.total - card.used, int(card.total * share)
    if free >= wanted:
        return None
    users = ", ".join(str(user.pid) for user in card.users or ())
    less = int(free / card.total * 100) / 100
    what = (
        f"card {card.index} has {size(free)} free of {size(card.total)}, and vLLM will "
        f"ask for {size(wanted)}" + (f" (used by PID {users})" if users else "")
    )
    lower = f"end those processes, or -- --gpu-memory-utilization {less:.2f}"
    hint = lower if less >= 0.1 else "--cards with free ones"
    return Problem(what, hint, busy=True)


def _for_volta(parser: Parser, mla: bool) -> list[Rule]:
    found = []
    if parser.takes("--dtype", "half"):
        found.append(
            Rule(("--dtype", "half"), note="--dtype half: no bfloat16 on V100")
        )
    if BACKEND in parser.backends and parser.has("--attention-backend"):
        if not mla:
            words = ("--attention-backend", BACKEND)
            found.append(Rule(words, note=f"{BACKEND}: the fork's attention for V100"))
    else:
        note = (
            f"vLLM {parser.version} has no {BACKEND}: it is not the fork, and may have "
            "no attention for V100 at all"
        )
        found.append(Rule(note=note))
    sampler = "VLLM_USE_FLASHINFER_SAMPLER"
    if sampler in parser.variables:
        found.append(Rule(env=((sampler, "0"),)))
    return found


def _named(gpus: Gpus, word: str) -> Card | None:
    for card in gpus.cards:
        is_uuid = len(word) > 4 and card.uuid.startswith(word)
        if is_uuid or word == str(card.index):
            return card
    return None


def _badness(gpus: Gpus, cards: tuple[Card, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Compare sets of cards: used ones, then those apart, then higher numbers."""
    busy = sum(1 for card in cards if (card.used or 0) > _FEW)
    indexes = tuple(card.index for card in cards)
    return busy, len(without_nvlink(gpus, indexes)), indexes


def _some(cards: Iterable[Card], count: int) -> str:
    return ",".join(str(card.index) for card in [*cards][:count])


def _some_linked(gpus: Gpus) -> bool:
    return any(pair.links for pair in gpus.pairs)


def variables_of(rules_: Iterable[Rule]) -> Mapping[str, str]:
    """Return the variables of all rules."""
    return dict(pair for rule in rules_ for pair in rule.env)
