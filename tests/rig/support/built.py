# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build's record, and what its launcher and its watch wrote, for tests of reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.rig.base.state import StateRoot

GIB = 1 << 30
CHECKOUT = "/home/dev/project"
NAMES = ("csrc/gemm/big.cu", "csrc/gemm/small.cu", "csrc/bind.cpp", "csrc/last.cu")


def event(at: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    """Return what a launcher tells of one compile."""
    return {
        "object": f"CMakeFiles/_C.dir/{NAMES[at]}.o",
        "kind": "cxx" if NAMES[at].endswith("cpp") else "cuda",
        "asked": 500.0,
        "started": 500.0 + start,
        "ended": 500.0 + end,
        "peak_bytes": GIB,
        "curve": [[0, GIB // 4], [1, GIB]],
        "code": 0,
        "attempts": 1,
        "oom": False,
        "cache": "miss",
        **more,
    }


def events() -> list[dict[str, Any]]:
    """Return four compiles on two lanes; the last runs alone."""
    return [
        event(0, 0, 60),
        event(1, 0, 20, attempts=2, oom=True),
        event(2, 20, 21, cache="hit"),
        event(3, 60, 100),
    ]


def memory() -> list[dict[str, Any]]:
    """Return samples that begin eight seconds before the first compile."""
    rows: list[dict[str, Any]] = [
        {"t": t, "used": 0, "budget": 4 * GIB, "running": 0} for t in range(8)
    ]
    for t in range(8, 109):
        rows.append(
            {
                "t": t,
                "used": 3 * GIB if t == 30 else GIB,
                "budget": (4 if t < 50 else 2) * GIB,
                "running": [{}, {}] if t < 30 else [{}],
                "waiting": 1,
            }
        )
    return rows


def record(name: str = "20261130-080000-cccc", **more: Any) -> dict[str, Any]:
    """Return the record of a build that went well."""
    ran = [(e["object"], e["started"] - 500, e["ended"] - 500) for e in events()]
    objects = [{"output": o, "start_s": start, "end_s": end} for o, start, end in ran]
    objects.append({"output": "_C.abi3.so", "start_s": 100.0, "end_s": 101.5})
    library = {"name": "pkg/_C.abi3.so", "size": 5 << 20, "sms": [70], "ptx": []}
    return {
        "id": name,
        "result": "done",
        "started": "2026-11-30T08:00:00Z",
        "seconds": 130.0,
        "commit": "abc1234",
        "version": "1.2.3",
        "profile": "sample",
        "checkout": CHECKOUT,
        "command": "invoke build-sm70",
        "notes": ["one work-round"],
        "steps": [
            {"title": "toolchain", "seconds": 5.0, "result": "done"},
            {"title": "build the wheel", "seconds": 104.0, "result": "done"},
        ],
        "objects": objects,
        "peaks": {"total_bytes": 2 * GIB, "process_bytes": GIB, "process_name": "cicc"},
        "plan": {"jobs": 2, "jobs_why": "2 cores", "toolchain": "CUDA 12.4"},
        "verify": {"libraries": [library | {"verdict": "ok"}]},
        **more,
    }


def write(root: StateRoot, made: dict[str, Any]) -> None:
    """Put a record where the suite keeps it, with what was written beside it."""
    made.setdefault("log", str(root.logs / f"{made['id']}.log"))
    root.make(root.records)
    root.make(root.logs)
    (root.records / f"{made['id']}.json").write_text(json.dumps(made))
    lines(root.logs / f"{made['id']}.events.jsonl", events())
    lines(root.logs / f"{made['id']}.memory.jsonl", memory())


def lines(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
