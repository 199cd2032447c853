# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``capacity``: does a model fit, and how much context beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, table
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.host import gpu
from tools.rig.host.gpu import Gpus
from tools.rig.serve import amounts, problem
from tools.rig.serve import capacity as planning
from tools.rig.serve import model as models
from tools.rig.serve.capacity import Capacity, Options
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.overhead import GIB
from tools.rig.serve.problem import Problem

TYPES = ("auto", "fp8_e5m2")
"""Caches that are compared where none is asked for: as the model, and the type of 8
bits that the fork's README names for V100."""

WIDER = (1, 2, 4, 8)
"""Numbers of cards that are tried where the model does not fit."""

MOST = (1 << 30) - 1
"""The largest number of any option: the largest card has less than a TiB, and nobody
counts tokens in billions."""

_HINT = "invoke capacity --model FOLDER --tp 2 --memory 16"


@dataclass(frozen=True)
class Report:
    """What ``capacity`` found: one plan for each type of cache, and the problems."""

    model: ModelFolder
    plans: tuple[Capacity, ...]
    problems: tuple[Problem, ...]
    fitting: int

    @property
    def fits(self) -> bool:
        """Whether it fits with one of the types of cache, and nothing is broken."""
        broken = [p for p in self.problems if p.level == "error"]
        return not broken and any(plan.fits for plan in self.plans)

    @property
    def exit_code(self) -> int:
        """0 where it fits, else the code for what this machine cannot do."""
        return ExitCode.OK if self.fits else ExitCode.CANNOT

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "model": str(self.model.path),
            "bytes": self.model.bytes,
            "shards": len(self.model.shards),
            "fits": self.fits,
            "fits_with_tp": self.fitting or None,
            "problems": [asdict(one) for one in self.problems],
            "plans": [plan.to_json() for plan in self.plans],
        }


def options_for(
    *,
    memory: str = "",
    tp: str = "",
    pp: str = "",
    utilisation: str = "",
    max_len: str = "",
    speculative: str = "",
    eager: bool = False,
    text_only: bool = False,
    upstream: bool = False,
    gpus: Callable[[], Gpus] = gpu.read,
) -> Options:
    """Return the options for cards as people type them; empty words are defaults.

    Parameters
    ----------
    memory
        Nominal memory of a card in GiB (16, 32); a V100 gives programs 1.4 % less. That
        of the smallest card here when empty.
    tp, pp, utilisation, max_len, speculative, eager
        As :class:`Options`.
    text_only
        Whether what reads pictures and sound is left out.
    upstream
        Whether a release of vLLM is to serve, and not the fork.
    gpus
        What reads this machine's cards.

    Raises
    ------
    UsageError
        When a word is no number, or no memory is named and no card can be read.
    """
    size = _number("memory", memory, 0) * GIB or _smallest(gpus())
    return Options(
        memory=int(size * planning.USABLE),
        tensor=_whole("tp", tp, 1),
        pipeline=_whole("pp", pp, 1),
        utilisation=_number("utilisation", utilisation, planning.UTILISATION),
        max_len=_whole("max-len", max_len, 0),
        speculative=_whole("speculative", speculative, 0),
        eager=eager,
        upstream=upstream,
        vision=not text_only,
    )


def capacity(
    console: Console,
    path: Path,
    options: Options,
    *,
    cache_dtype: str = "",
    sm: int = 70,
) -> Report:
    """Tell whether a model fits, from its headers, and how much context beside it.

    Parameters
    ----------
    console
        Where people read it.
    path
        The model's folder.
    options
        The cards, and how the model is to be served.
    cache_dtype
        The type of the cache; both of :data:`TYPES` where it is empty.
    sm
        Compute capability of the cards.

    Raises
    ------
    CannotError
        When the folder does not say enough.
    UsageError
        When the folder is not there or an option cannot be.
    """
    model = models.read(path)
    problems = tuple(
        models.checks(
            model, options.tensor, options.pipeline, sm=sm, env={**os.environ}
        )
    )
    try:
        plans = tuple(
            planning.plan(model, replace(options, cache_dtype=kind))
            for kind in ((cache_dtype,) if cache_dtype else TYPES)
        )
    except CannotError:
        problem.show(console, problems)
        raise
    fits = any(plan.fits for plan in plans)
    fitting = options.tensor if fits else _more(model, options, cache_dtype, sm)
    report = Report(model, plans, problems, fitting)
    _show(console, report)
    return report


def _whole(flag: str, word: str, other: int) -> int:
    return amounts.whole(flag, word, 1, MOST, hint=_HINT) if word else other


def _number(flag: str, word: str, other: float) -> float:
    if not word:
        return other
    found = amounts.number(flag, word, MOST, hint=_HINT)
    if not found:
        raise UsageError(f"--{flag} {word} is not a number above 0", hint=_HINT)
    return found


def _smallest(found: Gpus) -> int:
    sizes = [card.total for card in found.cards if card.total]
    if sizes:
        return min(sizes)
    raise UsageError(
        "how much memory a card has is not known here"
        + (f": {found.reason}" if found.reason else ""),
        hint=_HINT,
    )


def _more(model: ModelFolder, options: Options, cache_dtype: str, sm: int) -> int:
    for tensor in (n for n in WIDER if n > options.tensor):
        wider = replace(options, tensor=tensor, cache_dtype=cache_dtype or TYPES[-1])
        broken = [
            p
            for p in models.checks(
                model, tensor, options.pipeline, sm=sm, env={**os.environ}
            )
            if p.level == "error"
        ]
        if not broken and planning.plan(model, wider).fits:
            return tensor
    return 0


def _show(console: Console, report: Report) -> None:
    first = report.plans[0]
    shape, options = first.shape, first.options
    console.say(
        f"{shape.architecture}: {len(shape.layers)} layers, {shape.heads} heads, "
        f"{report.model.bytes / GIB:.2f} GiB in {len(report.model.shards)} file(s)"
    )
    count = options.tensor * options.pipeline
    console.say(
        f"{count} card(s) with {options.memory / GIB:.2f} GiB, of which vLLM gets "
        f"{options.utilisation:.0%}"
    )
    rows = []
    for card in first.cards:
        where = f" (stage {card.stage})" if options.pipeline > 1 else ""
        rows.append((f"weights{where}", _gib(card.weights.bytes), "from the headers"))
        rows += [(part.name, _gib(part.bytes), part.how) for part in card.parts]
        left = "of the share" if card.kv > 0 else "missing"
        rows.append(("left for the KV cache", _gib(card.kv), left))
    for line in table(("ON A CARD", "GiB", "HOW IT IS KNOWN"), rows):
        console.say(line)
    for line in _contexts(report.plans):
        console.say(line)
    for note in first.notes:
        console.say(f"note: {note}")
    problem.show(console, report.problems)
    for sentence in first.cannot_know:
        console.mark("unknown", sentence)
    best = next((plan for plan in report.plans if plan.fits), first)
    if report.fits:
        console.mark("ok", f"fits: {best.why}")
        return
    if not best.fits:
        console.mark("fail", f"does not fit: {best.why}")
    _advise(console, report)


def _contexts(plans: tuple[Capacity, ...]) -> list[str]:
    head = ("KV CACHE", *(_name(plan) for plan in plans))
    rows = [
        ("KiB a token", *(f"{plan.bytes_per_token / 1024:.1f}" for plan in plans)),
        ("tokens in all (vLLM's log)", *(f"{plan.kv_tokens:,}" for plan in plans)),
        ("longest context of one", *(f"{plan.longest:,}" for plan in plans)),
    ]
    for length in sorted({n for plan in plans for n in plan.at_once}):
        cells = [
            f"{plan.at_once[length]:.1f}" if length in plan.at_once else "-"
            for plan in plans
        ]
        rows.append((f"sequences of {length:,} at once", *cells))
    return table(head, rows)


def _name(plan: Capacity) -> str:
    kind = plan.options.cache_dtype
    return "as the model (16 bits)" if kind == "auto" else kind


def _advise(console: Console, report: Report) -> None:
    options = report.plans[0].options
    if report.fitting > options.tensor:
        console.say(f"hint: --tp {report.fitting}")
    elif not report.plans[0].fits and not report.fitting:
        longest = max(plan.longest for plan in report.plans)
        # where some context goes in, what was asked for is too much
        much = options.max_len and longest
        less = "a model with fewer bits (AWQ), or cards with more memory"
        console.say(f"hint: {f'--max-len {longest}' if much else less}")


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"
