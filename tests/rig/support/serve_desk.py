# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A desk with a program on it that answers like a server."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.vllm_cpu import free_port
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.host.gpu import Card, Gpus, Use
from tools.rig.serve import counting, probe, stop
from tools.rig.serve import record as records
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord
from tools.rig.steps import serve as step

FAKE = Path(__file__).with_name("fake_server.py")
NO_CARDS = Gpus("absent", "a test")


@dataclass
class Desk:
    """A state root, and words of what was said."""

    root: StateRoot
    said: io.StringIO

    @property
    def console(self) -> Console:
        """A console that is read afterwards."""
        return Console(self.said, env={})

    def plan(self, *words: str, name: str = "one", port: int = 0) -> ServePlan:
        """Return the plan of a server with faults."""
        port = port or free_port()
        return ServePlan(
            name=name,
            model=Path("/models/tiny"),
            served_name="tiny",
            python=Path(sys.executable),
            argv=(sys.executable, "-S", os.fspath(FAKE), str(port), *words),
            env={"HELLO": "1"},
            unset=("VLLM_API_KEY",),
            cwd=Path("/"),
            host="127.0.0.1",
            port=port,
            api_key_file=None,
            tensor=1,
            pipeline=1,
            cards=(),
            log=self.root.path / "servers" / f"{name}.log",
            drain_s=0,
        )

    def serve(self, plan: ServePlan, **how: Any) -> step.Served:
        """Start it."""
        return step.serve(
            self.console,
            plan,
            self.root,
            ask=lambda: NO_CARDS,
            **{"timeout": 20.0, **how},
        )

    def record(self, name: str = "one") -> ServerRecord:
        """Return a record that must be there."""
        found = records.load(self.root, name)
        assert found is not None
        return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Give a desk, and end what is left on it."""
    monkeypatch.setattr(counting, "STILL_S", 1.0)
    made = Desk(StateRoot(tmp_path / "root"), io.StringIO())
    yield made
    for record in records.listing(made.root):
        stop.stop(made.root, record, drain=0, ask=lambda: NO_CARDS)


def listens(record: ServerRecord) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 10
    while not probe.health(record).status and time.monotonic() < deadline:
        time.sleep(0.05)


def card(index: int, used: int, users: tuple[tuple[int, int], ...] = ()) -> Card:
    """Return a card on which so many bytes are used, and by whom."""
    gone = tuple(Use(pid, bytes_) for pid, bytes_ in users)
    return Card(index, "V100", f"GPU-{index}", "", 70, 16 << 30, used, gone)
