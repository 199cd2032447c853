# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The counters of a server, from its ``/metrics``.

The text format is Prometheus's; the names are vLLM's, of which some changed over time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import regex as re

from tools.rig.serve.probe import ask
from tools.rig.serve.record import ServerRecord

_LINE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>\S+)")
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_PROMPT = ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
_MADE = ("vllm:generation_tokens_total", "vllm:generation_tokens")
# grow with every step of the engine: a long prompt makes no token for a long time
_STEPS = ("vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count")


@dataclass(frozen=True)
class Counters:
    """What a server has done. ``kv`` is between 0 and 1; None: it does not say.

    ``work`` is the sum of everything that grows while it works.
    """

    running: int | None
    waiting: int | None
    kv: float | None
    prompt: float | None
    generated: float | None
    work: float | None


def read(record: ServerRecord, timeout: float = 2.0) -> Counters | None:
    """Return the counters, or None when the server does not tell them."""
    answer = ask(record, "/metrics", timeout=timeout)
    return parse(answer.body.decode("utf-8", "replace")) if answer.ok else None


def parse(text: str) -> Counters | None:
    """Return the counters in a text; None when it has none of a vLLM server.

    Several engines behind one server are added up, and the fullest cache counts.
    """
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or not match["name"].startswith("vllm:"):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        # the format has words for what is no number, and no counter is any of them
        if math.isfinite(value):
            found.setdefault(match["name"], []).append(value)
    if not found:
        return None
    running, waiting = _sum(found, _RUNNING), _sum(found, _WAITING)
    prompt, made = _sum(found, _PROMPT), _sum(found, _MADE)
    # not the finished requests: clients that give up on a hung server count there
    parts = [prompt, made]
    parts += [_sum(found, [name]) for name in _STEPS]
    known = [part for part in parts if part is not None]
    fill = _first(found, _KV)
    return Counters(
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
        kv=max(fill) if fill else None,
        prompt=prompt,
        generated=made,
        work=sum(known) if known else None,
    )


def _first(found: dict[str, list[float]], names: Iterable[str]) -> list[float]:
    return next((found[name] for name in names if name in found), [])


def _sum(found: dict[str, list[float]], names: Iterable[str]) -> float | None:
    values = _first(found, names)
    return sum(values) if values else None
