# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A small parser like the fork's, and cards like V100s, for plans without a machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tools.rig.host.gpu import Card, Gpus, Pair, Use
from tools.rig.serve.parser import Option, Parser

GIB = 1 << 30


def flag(*names: str, **more: Any) -> Option:
    """Return an option."""
    long = next((name for name in names if name.startswith("--")), names[0])
    dest = more.pop("dest", long.lstrip("-").replace("-", "_"))
    return Option(flags=names, dest=dest, **more)


def switch(name: str) -> Option:
    """Return an option that is on or off."""
    return flag(f"--{name}", f"--no-{name}", nargs=0)


_AUTO = "human_readable_int_or_auto"
_TYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")
_DTYPES = ("auto", "bfloat16", "float16", "half")

FORK = Parser(
    version="1.3.0",
    device="cuda",
    backends=("FLASHINFER", "FLASHINFER_SM70", "FLASH_ATTN_V100", "TRITON_ATTN"),
    variables=frozenset(
        {"VLLM_API_KEY", "VLLM_LOGGING_LEVEL", "VLLM_USE_FLASHINFER_SAMPLER"}
    ),
    named=frozenset({"VLLM_READ_BY_A_FILE"}),
    options=(
        flag("--api-key", nargs="+"),
        flag("--attention-backend", optional=True),
        flag("--chat-template"),
        flag("--config"),
        flag("--cudagraph-capture-sizes", kind="int", nargs="+"),
        flag("--data-parallel-size", "-dp", kind="int"),
        switch("disable-custom-all-reduce"),
        flag("--dtype", choices=_DTYPES),
        switch("enable-prefix-caching"),
        switch("enforce-eager"),
        flag("--gpu-memory-utilization", kind="float", default=0.92),
        flag("--hf-token", nargs="?"),
        flag("--host"),
        flag("--kv-cache-dtype", choices=_TYPES),
        switch("language-model-only"),
        flag("--limit-mm-per-prompt", kind="json"),
        flag("--max-model-len", kind=_AUTO),
        flag("--max-num-batched-tokens", kind="human_readable_int", optional=True),
        flag("--max-num-seqs", kind="int", optional=True),
        flag("--model"),
        flag("--optimization-level"),
        flag("--pipeline-parallel-size", "-pp", kind="int"),
        flag("--port", kind="int"),
        flag("--reasoning-parser", nargs="?"),
        flag("--served-model-name", nargs="+"),
        flag("--shutdown-timeout", kind="int"),
        flag("--speculative-config", "-sc", kind="json", optional=True),
        flag("--tensor-parallel-size", "-tp", kind="int"),
        switch("trust-remote-code"),
        flag("--window", kind="int", nargs=2),
    ),
)


def card(index: int, *, gib: float = 16, used: float = 0.0, sm: int = 70) -> Card:
    """Return a card of so many GiB, of which so many are used by PID 77."""
    users = (Use(77, int(used * GIB)),) if used else ()
    return Card(
        index=index,
        name="Tesla V100",
        uuid=f"GPU-{index}abc",
        bus=f"0000:0{index}:00.0",
        sm=sm,
        total=int(gib * GIB),
        used=int(used * GIB),
        users=users,
    )


def gpus(
    *cards: Card, linked: Iterable[tuple[int, int]] = (), links: int | None = 0
) -> Gpus:
    """Return a machine's cards; pairs that are not `linked` have `links`."""
    joined = set(linked)
    pairs = tuple(
        Pair(a.index, b.index, 2 if (a.index, b.index) in joined else links, "ok")
        for at, a in enumerate(cards)
        for b in cards[at + 1 :]
    )
    return Gpus("present", "", "570.86.10", "12.8", cards, pairs)


TWO = gpus(card(0), card(1), linked=[(0, 1)])
"""Two V100 with NVLink between them."""
