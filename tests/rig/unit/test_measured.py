# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The published tables are those of the committed records."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.rig import measured
from tools.rig.builds.meter import Peaks

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_made_from_the_records() -> None:
    """Nobody edits a figure by hand: making the tables anew changes nothing."""
    text = measured.PAGE.read_text(encoding="utf-8")
    assert measured.page(text) == text
    assert "<!-- record " in text


def test_cubins_are_counted_by_library_and_card() -> None:
    """The listing of cuobjdump is read as it prints it."""
    listing = (
        "== a/_C.so\nELF file    1: _C.1.sm_70.cubin\nELF file    2: _C.2.sm_70.cubin\n"
        "ELF file    3: _C.3.sm_90a.cubin\n== b.so\n"
    )
    assert measured.cubins(listing) == {
        "a/_C.so": {"sm_70": 2, "sm_90": 1},
        "b.so": {},
    }


def test_no_path_of_the_machine_is_kept() -> None:
    """What is published names toolkit and compiler, not where they lie."""
    record = {name: [] for name in measured._KEPT}
    record |= {
        "plan": {
            "jobs": 2,
            "toolchain": "CUDA 12.4.131 in /x/y (provisioned): sm_50 to sm_90; "
            "host compiler g++ 12.2 (/usr/bin/g++)",
        },
        "verify": {"libraries": [{"name": "a.so", "size": 1, "path": "/x/a.so"}]},
    }
    record["seconds"] = 3
    kept = measured.keep(record, "a machine")
    assert kept["sittings"] == [3]
    assert "/" not in kept["toolchain"]
    assert kept["toolchain"].endswith("host compiler g++ 12.2")
    assert kept["libraries"] == [{"name": "a.so", "size": 1}]


def test_an_interrupted_build_is_one_record() -> None:
    """Times add up; memory is that of the run in which the object was compiled."""

    def run(seconds: float, process: int, total: int, **held: int) -> dict[str, Any]:
        peaks = {"process_bytes": process, "process_name": f"p{process}"}
        objects = {name.replace("_", "."): size for name, size in held.items()}
        peaks |= {"total_bytes": total, "objects_bytes": objects}
        return {"seconds": seconds, "peaks": peaks, "checkout": "/c", "objects": []}

    first, last = run(60.0, 5, 7, a_o=1), run(30.0, 4, 9, b_o=2)
    first["peaks"]["objects_bytes"]["/c/ext/d.o"] = 8
    last["objects"] = [
        {"output": name, "start_s": 0, "end_s": 1, "peak_bytes": None}
        for name in ("a.o", "b.o", "c.o", "ext/d.o")
    ]
    made = measured.joined([first, last])
    assert made["seconds"] == 90.0 and made["sittings"] == [60.0, 30.0]
    assert [one["peak_bytes"] for one in made["objects"]] == [1, 2, None, 8]
    assert made["peaks"]["process_name"] == "p5"
    assert made["peaks"]["total_bytes"] == 9
    assert measured._sittings(made) == " in 2 runs (1.0 min, 0.5 min)"
    assert measured._sittings({"sittings": [3]}) == ""


def test_a_record_of_today() -> None:
    """Peaks stand beside the objects; ninja starts more than compile at once."""

    def run(**held: int | None) -> dict[str, Any]:
        objects = [
            {"output": f"{name}.o", "start_s": 0, "end_s": 1, "peak_bytes": size}
            for name, size in held.items()
        ]
        told = {"objects": objects, "peaks": Peaks(9, 5, "cicc").to_json()}
        return {**told, "seconds": 60.0, "checkout": "/c"}

    made = measured.joined([run(a=3, b=None), run(a=None, b=4)])
    assert [one["peak_bytes"] for one in made["objects"]] == [3, 4]
    made |= {name: "" for name in measured._KEPT if name not in made}
    made["plan"] = {"jobs": 40, "compiles_at_once": 2, "toolchain": "CUDA 12.4"}
    made["verify"] = {"libraries": []}
    assert measured.keep(made, "a machine")["jobs"] == 2


def test_memory_over_time() -> None:
    """What the page says of the mean memory of a compile is what the record holds."""
    file = measured.RECORDS / "fork-memory.json"
    compiles = json.loads(file.read_text(encoding="utf-8"))["compiles"]
    shares = []
    for points in compiles.values():
        held = [size for _, size in points]
        shares.append(statistics.mean(held) / max(held))
    said = (
        f"{statistics.median(shares):.2f} of its peak memory (median of {len(shares)} "
        f"compiles; {min(shares):.2f} to {max(shares):.2f})"
    )
    assert said in measured.PAGE.read_text(encoding="utf-8")
