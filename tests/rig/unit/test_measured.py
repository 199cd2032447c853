# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The published tables are those of the committed records."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    """Return the script that makes the tables."""
    file = ROOT / "benchmarks" / "rig" / "measured.py"
    spec = importlib.util.spec_from_file_location("measured", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_records(measured: ModuleType) -> None:
    """Nobody edits a figure by hand: making the tables anew changes nothing."""
    text = measured.PAGE.read_text(encoding="utf-8")
    assert measured.page(text) == text
    assert "<!-- record " in text


def test_cubins_are_counted_by_library_and_card(measured: ModuleType) -> None:
    """The listing of cuobjdump is read as it prints it."""
    listing = (
        "== a/_C.so\nELF file    1: _C.1.sm_70.cubin\nELF file    2: _C.2.sm_70.cubin\n"
        "ELF file    3: _C.3.sm_90a.cubin\n== b.so\n"
    )
    assert measured.cubins(listing) == {
        "a/_C.so": {"sm_70": 2, "sm_90": 1},
        "b.so": {},
    }


def test_no_path_of_the_machine_is_kept(measured: ModuleType) -> None:
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
    kept = measured.keep(record, "a machine")
    assert "/" not in kept["toolchain"]
    assert kept["toolchain"].endswith("host compiler g++ 12.2")
    assert kept["libraries"] == [{"name": "a.so", "size": 1}]
