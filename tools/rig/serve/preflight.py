# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Everything that would keep a server from starting, told at once and before it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.rig.base.console import size
from tools.rig.base.errors import (
    CannotError,
    ExitCode,
    InUseError,
    RigError,
    UsageError,
)
from tools.rig.host import memory
from tools.rig.host.gpu import Card
from tools.rig.host.memory import Memory
from tools.rig.serve import capacity, host_room, ports, safe, variables, volta
from tools.rig.serve import model as models
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.parser import Parser
from tools.rig.serve.planning import Planned
from tools.rig.serve.problem import Problem

SHM = Path("/dev/shm")
MIB = 1 << 20

SHM_QUEUE = 160 * MIB
"""What vLLM lays out in /dev/shm for one engine with several workers: 10 pieces of 16
MiB (``VLLM_MQ_MAX_CHUNKS``, ``VLLM_MQ_MAX_CHUNK_BYTES_MB``,
``vllm/v1/executor/multiproc_executor.py``)."""

SHM_RANK = 32 * MIB
"""An estimate for each rank: its answers, and NCCL's buffers where cards do not reach
each other directly."""


_KINDS: Mapping[ExitCode, type[RigError]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.CANNOT: CannotError,
    ExitCode.IN_USE: InUseError,
}


@dataclass(frozen=True)
class Seams:
    """What is asked of the machine; tests put fakes here."""

    port: Callable[[str, int], Problem | None] = ports.look
    shm_free: Callable[[], int | None] = lambda: shm_free()
    memory: Callable[[], Memory] = memory.read
    in_use: Callable[[Card, float], Problem | None] = volta.in_use


def shm_free(path: Path = SHM) -> int | None:
    """Return the free bytes of the memory that processes share; None: not there."""
    try:
        held = os.statvfs(path)
    except OSError:
        return None
    return held.f_bavail * held.f_frsize


def check(
    planned: Planned,
    model: ModelFolder,
    parser: Parser,
    *,
    env: Mapping[str, str],
    build: Problem | None = None,
    seams: Seams | None = None,
) -> tuple[list[Problem], list[Problem]]:
    """Return the faults of the command line, and those of the machine and the model.

    Parameters
    ----------
    build
        What is known against the build.
    env
        The variables that a server would get from us.
    """
    ask = seams or Seams()
    plan = planned.plan
    sm = volta.SM if planned.is_volta else 0
    found = [*planned.problems]
    found += [build] if build else []
    its = {**env, **plan.env}
    found += models.checks(model, plan.tensor, plan.pipeline, sm=sm, env=its)
    found += _drafts(planned, model)
    found += _cards(planned, parser, ask)
    found += _room(planned, model, parser)
    found += _shared_memory(planned, ask.shm_free())
    found += host_room.problems(
        planned, model, ask.memory(), env, on_processor=parser.device == "cpu"
    )
    # what is no port at all is a fault of the command line, and told there
    taken = None if ports.outside(plan.port) else ask.port(plan.host, plan.port)
    found += [taken] if taken else []
    found += variables.problems({*env, *plan.env} - {*plan.unset}, parser)
    return [*planned.usage, *safe.of_key(plan.api_key_file)], found


def verdict(usage: Iterable[Problem], problems: Iterable[Problem]) -> ExitCode:
    """Return the exit code that a start would have with these in its way."""
    if any(problem.level == "error" for problem in usage):
        return ExitCode.USAGE
    bad = [problem for problem in problems if problem.level == "error"]
    if not bad:
        return ExitCode.OK
    busy = all(problem.busy for problem in bad)
    return ExitCode.IN_USE if busy else ExitCode.CANNOT


def refuse(usage: Sequence[Problem], problems: Sequence[Problem]) -> None:
    """Raise when something would keep the server from starting.

    Raises
    ------
    UsageError
        When something is wrong with the command line.
    InUseError
        When others have what is wanted, and nothing else is in the way: later it may
        be free.
    CannotError
        When something else is in the way.
    """
    bad = [p for p in (*usage, *problems) if p.level == "error"]
    code = verdict(usage, problems)
    if code == ExitCode.OK:
        return
    kind = _KINDS[code]
    if len(bad) == 1:
        raise kind(f"not started: {bad[0].what}", hint=bad[0].hint)
    raise kind(
        f"not started: {len(bad)} things are in the way",
        details=[p.what + (f" (hint: {p.hint})" if p.hint else "") for p in bad],
        hint=bad[0].hint,
    )


def _drafts(planned: Planned, model: ModelFolder) -> Iterator[Problem]:
    """Look whether a model that is to draft its own tokens can."""
    if _draft_tokens(planned) and not _has_mtp(model):
        yield Problem(
            "the model has no layers for multi-token prediction (MTP)",
            "leave out --preset mtp, or --speculative-config",
        )


def _draft_tokens(planned: Planned) -> int:
    given = planned.options.last("speculative_config")
    try:
        said = json.loads(given.value) if given is not None else None
    except ValueError:
        return 0
    if not isinstance(said, Mapping) or said.get("model"):
        return 0
    number = said.get("num_speculative_tokens")
    is_own = said.get("method") in ("mtp", "qwen3_next_mtp", "deepseek_mtp")
    return number if is_own and isinstance(number, int) else 0


def _has_mtp(model: ModelFolder) -> bool:
    text = model.config.get("text_config")
    places = (model.config, text if isinstance(text, Mapping) else {})
    keys = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
    return any(place.get(key) for place in places for key in keys)


def _cards(planned: Planned, parser: Parser, ask: Seams) -> Iterator[Problem]:
    share = _share(planned, parser)
    for card in planned.chosen.cards:
        problem = ask.in_use(card, share)
        if problem is not None:
            yield problem


def _room(planned: Planned, model: ModelFolder, parser: Parser) -> Iterator[Problem]:
    """Say whether the model goes onto the cards, as far as its headers tell."""
    totals = [card.total for card in planned.chosen.cards if card.total]
    if not totals or model.errors or not model.tensors:
        return
    options = capacity.Options(
        memory=min(totals),
        tensor=planned.plan.tensor,
        pipeline=planned.plan.pipeline,
        utilisation=_share(planned, parser),
        max_len=_whole(planned, "max_model_len"),
        batched=_whole(planned, "max_num_batched_tokens") or 2048,
        sequences=_whole(planned, "max_num_seqs") or 256,
        speculative=_draft_tokens(planned),
        vision=planned.options.last("language_model_only") is None,
        upstream=volta.BACKEND not in parser.backends,
    )
    kind = planned.options.last("kv_cache_dtype")
    if kind is not None:
        options = replace(options, cache_dtype=kind.value)
    try:
        made = capacity.plan(model, options)
    except RigError:
        # what cannot be told is told by the model's own checks
        return
    folder = shlex.quote(os.fspath(model.path))
    hint = f"invoke capacity --model {folder} --tp {planned.plan.tensor}"
    over = [card for card in made.cards if card.weights.bytes > card.given]
    if over:
        what = (
            f"the weights take {size(over[0].weights.bytes)} of each card, and vLLM "
            f"gets {size(over[0].given)}"
        )
        yield Problem(what, hint)
    elif not made.fits:
        yield Problem(f"by estimate it does not fit: {made.why}", hint, "note")


def _shared_memory(planned: Planned, free: int | None) -> Iterator[Problem]:
    ranks = planned.plan.tensor * planned.plan.pipeline
    if ranks < 2:
        return
    wanted = SHM_QUEUE + SHM_RANK * ranks
    hint = "mount -o remount,size=8G /dev/shm (for a container: --shm-size 8g)"
    if free is None:
        yield Problem("there is no /dev/shm, by which the workers talk", hint)
    elif free < wanted:
        what = f"/dev/shm has {size(free)} free, and {ranks} workers want about "
        yield Problem(what + size(wanted), hint)


def _share(planned: Planned, parser: Parser) -> float:
    option = parser.by_flag.get("--gpu-memory-utilization")
    default = option.default if option is not None else None
    given = planned.options.last("gpu_memory_utilization")
    try:
        share = float(given.value if given is not None else str(default))
    except ValueError:
        share = 0.0
    return share if 0 < share <= 1 else capacity.UTILISATION


def _whole(planned: Planned, dest: str) -> int:
    given = planned.options.last(dest)
    word = given.value if given is not None else ""
    # Python converts no text with some thousands of digits
    return int(word) if word.isdecimal() and len(word) < 20 else 0
