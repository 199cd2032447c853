# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whole logs, as people post them, end in the right cause at the right line.

Among them are logs whose last line misleads, and healthy ones that look bad.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tools.rig.diagnose import examine
from tools.rig.diagnose.reader import blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STORIES = Path(__file__).parents[1] / "stories"
EXPECTED = tomllib.loads((STORIES / "expected.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_story(name: str) -> None:
    """The verdict, the first finding and its line are those that were established."""
    expected: dict[str, Any] = EXPECTED[name]
    with (STORIES / f"{name}.txt").open("rb") as log:
        judgement = examine.stream(blocks(log), name).judgement
    assert judgement.verdict.value == expected["verdict"]
    if "cause" in expected:
        first = judgement.findings[0]
        assert first.hit.entry.id == expected["cause"]
        assert first.hit.line.number == expected["line"]


def test_every_story_is_told() -> None:
    """No log lies there without an expectation."""
    assert {file.stem for file in STORIES.glob("*.txt")} == set(EXPECTED)
