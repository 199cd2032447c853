# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Main memory against what a start wants of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.made_model import LLAMA, llama_tensors, write
from tests.rig.support.made_parser import FORK, GIB, TWO, flag
from tools.rig.base.state import StateRoot
from tools.rig.host.memory import Memory
from tools.rig.serve import folder, host_room, planning
from tools.rig.serve.folder import Problem
from tools.rig.serve.parser import Parser
from tools.rig.serve.planning import Wish

MORE = Parser(
    version=FORK.version,
    device="cuda",
    options=(
        *FORK.options,
        flag("--cpu-offload-gb", kind="float"),
        flag("--kv-offloading-size", kind="float"),
        flag("--safetensors-load-strategy"),
    ),
)


@pytest.fixture
def found(tmp_path: Path) -> Any:
    """Return what asks for the problems of a plan on two cards."""
    write(tmp_path / "m", LLAMA, llama_tensors())
    model = folder.read(tmp_path / "m")

    def ask(
        *rest: str,
        free: float,
        total: float = 64,
        limit: float | None = None,
        env: dict[str, str] | None = None,
        on_processor: bool = False,
    ) -> list[Problem]:
        wish = Wish(model=tmp_path / "m", environment=Path("/e"), rest=rest)
        root = StateRoot(tmp_path / "root")
        planned = planning.plan(wish, MORE, TWO, model, root, env={}, cwd=tmp_path)
        assert planned.usage == ()
        have = Memory(
            int(total * GIB),
            int(free * GIB),
            None if limit is None else int(limit * GIB),
            "/sys/fs/cgroup/memory.max",
            int(free * GIB),
        )
        return [
            *host_room.problems(
                planned, model, have, env or {}, on_processor=on_processor
            )
        ]

    return ask


def test_enough(found: Any) -> None:
    """The size of the model does not count: its pages are given back."""
    assert found(free=5.1) == []


def test_little_is_a_warning(found: Any) -> None:
    """Processes take an estimate; where that is not free now, it is only a note."""
    [one] = found(free=4)
    assert one.level == "note"
    assert "has 4.0 GiB of its memory free" in one.what and "5.0 GiB" in one.what


def test_pinned_memory_is_asked_for(found: Any) -> None:
    """What options put into memory counts for each rank; more than all is an error."""
    [one] = found("--cpu-offload-gb", "10", free=20)
    assert one.level == "note" and "--cpu-offload-gb 20.0 GiB" in one.what
    [one] = found("--cpu-offload-gb", "40", free=60)
    assert one.level == "error" and "80.0 GiB of this machine's memory" in one.what
    [one] = found("--kv-offloading-size", "40", free=44)
    assert one.level == "note" and "--kv-offloading-size 40.0 GiB" in one.what
    [one] = found("--kv-offloading-size", "40", free=44, limit=32)
    assert one.level == "error" and "memory.max" in one.what


def test_eager_loading_holds_a_file(found: Any) -> None:
    """A file that is read as a whole is there twice for each rank."""
    assert found("--safetensors-load-strategy", "lazy", free=5.1) == []
    [one] = found("--safetensors-load-strategy", "eager", free=5)
    assert "--safetensors-load-strategy eager" in one.what


def test_on_the_processor_the_weights_stay(found: Any) -> None:
    """Without cards weights and cache are in this memory."""
    env = {"VLLM_CPU_KVCACHE_SPACE": "70"}
    [one] = found(free=60, env=env, on_processor=True)
    assert one.level == "error" and "the KV cache 70.0 GiB" in one.what
    assert found(free=60, env={"VLLM_CPU_KVCACHE_SPACE": "x"}, on_processor=True) == []


def test_unknown(found: Any) -> None:
    """Where the kernel does not tell, nothing is guessed."""
    [one] = found(free=0, total=0)
    assert one.level == "unknown"
