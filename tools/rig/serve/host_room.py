# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether this machine's own memory, beside its cards, is enough to load a model.

The weights need no room of their own: they are mapped, a tensor at a time goes to its
card, and what stays of the files in the page cache is given up when others want it
(``vllm/model_executor/model_loader/weight_utils.py``). What needs room are the
processes, and what options put here on purpose, pinned so that it cannot be swapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tools.rig.base.console import size
from tools.rig.host.memory import Memory
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.planning import Planned
from tools.rig.serve.problem import Problem

GIB = 1 << 30

SERVER = 1 * GIB
RANK = 2 * GIB
"""Estimates. Real vLLM 0.32 on the processor took 2.5 GB with one rank and 3.9 GB with
two; CUDA's context adds to each rank."""

_PINNED = {"cpu_offload_gb": "each", "kv_offloading_size": "all", "swap_space": "each"}
"""Options in GiB of this machine's memory: for each rank, or for all together
(``vllm/config/cache.py``)."""


def problems(
    planned: Planned,
    model: ModelFolder,
    have: Memory,
    env: Mapping[str, str],
    *,
    on_processor: bool,
) -> Iterator[Problem]:
    """Yield what is to be said of the memory of this machine.

    Only what was asked for, and more than there will ever be, is an error: for the rest
    others may make room, and the processes' own needs are an estimate.

    Parameters
    ----------
    have
        What there is.
    env
        The variables that the server would get from us.
    on_processor
        The model stays in this memory.
    """
    ranks = planned.plan.tensor * planned.plan.pipeline
    parts = _asked(planned, ranks)
    if on_processor:
        parts["the weights"] = model.bytes
        parts["the KV cache"] = _gib(env.get("VLLM_CPU_KVCACHE_SPACE", "")) or 0
    sure = sum(parts.values())
    parts["the processes, by estimate"] = SERVER + RANK * ranks
    parts.update(_while_loading(planned, model, ranks))
    wanted = sum(parts.values())
    whole = have.limit or have.total
    words = ", ".join(f"{what} {size(n)}" for what, n in parts.items() if n)
    hint = "free -h; for a container its --memory"
    if not whole:
        yield Problem("how much memory this machine has is not known", hint, "unknown")
    elif sure > whole:
        limit = f" ({have.limited_by})" if have.limit else ""
        yield Problem(
            f"{size(sure)} of this machine's memory are asked for, and there are "
            f"{size(whole)}{limit}: {words}",
            hint,
        )
    elif wanted > have.usable:
        yield Problem(
            f"this machine has {size(have.usable)} of its memory free, and a start may "
            f"want {size(wanted)}: {words}",
            hint,
            "note",
        )


def _asked(planned: Planned, ranks: int) -> dict[str, int]:
    found = {}
    for dest, whose in _PINNED.items():
        given = planned.options.last(dest)
        amount = _gib(given.value) if given is not None else 0
        if given is not None and amount:
            found[given.option.name] = amount * (ranks if whose == "each" else 1)
    return found


def _while_loading(planned: Planned, model: ModelFolder, ranks: int) -> dict[str, int]:
    given = planned.options.last("safetensors_load_strategy")
    if given is None or given.value != "eager":
        return {}
    # the file, and the tensors that are copied out of it
    largest = max((shard.size for shard in model.shards), default=0)
    return {"--safetensors-load-strategy eager": 2 * largest * ranks}


def _gib(word: str) -> int:
    try:
        amount = float(word)
    except ValueError:
        return 0
    return int(amount * GIB) if 0 < amount < 1e6 else 0
