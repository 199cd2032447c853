# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""in-use says which server a process belongs to."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.guard.scan import ScanResult, User
from tools.rig.steps.in_use import in_use

SERVER = User(90, 1, "bob", "VLLM::EngineCore", maps=("lib/a.so",))
OTHER = User(91, 1, "bob", "python train.py", maps=("lib/a.so",))


def test_a_server_is_named(tmp_path: Path) -> None:
    """A process of a server is shown with its name and port, others without."""
    root, out = StateRoot(tmp_path), io.StringIO()
    asked = []

    def serving(where: StateRoot) -> dict[int, str]:
        asked.append(where)
        return {90: "server qwen at port 8000", 95: "server idle at port 1"}

    def used(targets: object) -> ScanResult:
        return ScanResult(users=(SERVER,), suspects=(OTHER,))

    report = in_use(Console(out), root.venvs / "one", None, look=used, serving=serving)
    assert asked == [root]
    assert report.servers == {90: "server qwen at port 8000"}
    lines = out.getvalue().splitlines()
    assert "(server qwen at port 8000)" in lines[1]
    assert "(server" not in lines[2]
    assert json.loads(json.dumps(asdict(report)))["servers"]["90"].startswith("server")


def test_nobody_is_asked_for_nothing(tmp_path: Path) -> None:
    """Without users, and for an environment elsewhere, no records are read."""

    def serving(where: StateRoot) -> dict[int, str]:
        raise AssertionError("asked")

    def free(targets: object) -> ScanResult:
        return ScanResult()

    def used(targets: object) -> ScanResult:
        return ScanResult(users=(SERVER,))

    console = Console(io.StringIO())
    place = StateRoot(tmp_path).venvs / "one"
    assert in_use(console, place, None, look=free, serving=serving).servers == {}
    alone = in_use(console, tmp_path / "conda", None, look=used, serving=serving)
    assert alone.servers == {}
