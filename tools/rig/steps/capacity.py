# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``capacity``: does a model fit, and how much context beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, table
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.serve import capacity as planning
from tools.rig.serve import model as models
from tools.rig.serve.capacity import Capacity, Options
from tools.rig.serve.folder import ModelFolder, Problem
from tools.rig.serve.overhead import GIB

TYPES = ("auto", "fp8_e5m2")
"""Caches that are compared where none is asked for: as the model, and the type of 8
bits that the fork's README names for V100."""

WIDER = (1, 2, 4, 8)
"""Numbers of cards that are tried where the model does not fit."""


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
            "problems": [asdict(problem) for problem in self.problems],
            "plans": [plan.to_json() for plan in self.plans],
        }


def options_for(
    *,
    memory: float,
    tensor: int,
    pipeline: int,
    utilisation: float = planning.UTILISATION,
    max_len: int = 0,
    eager: bool = False,
    vision: bool = True,
    speculative: int = 0,
) -> Options:
    """Return the options for cards as people name them.

    Parameters
    ----------
    memory
        Nominal memory of a card in GiB (16, 32); a V100 gives programs 1.4 % less.
    tensor, pipeline, utilisation, max_len, eager, vision, speculative
        As :class:`Options`.

    Raises
    ------
    UsageError
        When the memory is not a positive number.
    """
    if not 0 < memory < 1 << 20:
        raise UsageError(
            "--memory is what one card has, in GiB", hint="invoke capacity --memory 16"
        )
    return Options(
        memory=int(memory * GIB * planning.USABLE),
        tensor=tensor,
        pipeline=pipeline,
        utilisation=utilisation,
        max_len=max_len,
        eager=eager,
        vision=vision,
        speculative=speculative,
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
    problems = tuple(models.checks(model, options.tensor, options.pipeline, sm=sm))
    try:
        plans = tuple(
            planning.plan(model, replace(options, cache_dtype=kind))
            for kind in ((cache_dtype,) if cache_dtype else TYPES)
        )
    except CannotError:
        _show_problems(console, problems)
        raise
    fits = any(plan.fits for plan in plans)
    fitting = options.tensor if fits else _more(model, options, cache_dtype, sm)
    report = Report(model, plans, problems, fitting)
    _show(console, report)
    return report


def _more(model: ModelFolder, options: Options, cache_dtype: str, sm: int) -> int:
    for tensor in (n for n in WIDER if n > options.tensor):
        wider = replace(options, tensor=tensor, cache_dtype=cache_dtype or TYPES[-1])
        broken = [
            p
            for p in models.checks(model, tensor, options.pipeline, sm=sm)
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
    _show_problems(console, report.problems)
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
        console.say("hint: a model with fewer bits (AWQ), or cards with more memory")


def _show_problems(console: Console, problems: tuple[Problem, ...]) -> None:
    marks = {"error": "fail", "unknown": "unknown", "note": "warn"}
    for problem in problems:
        console.mark(marks[problem.level], problem.what)
        if problem.hint and problem.level != "note":
            console.say(f"  hint: {problem.hint}")


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"
