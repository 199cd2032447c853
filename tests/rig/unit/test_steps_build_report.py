# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build says at its end."""

from __future__ import annotations

from typing import Any

import pytest

from tools.rig.steps.build_report import held_up


@pytest.mark.parametrize(
    ("admission", "said"),
    [
        (None, ""),
        ({"waited_s": 900.0}, ""),
        ({"stalled_s": 2.0, "held_by": ["x"]}, ""),
        (
            {"stalled_s": 463.0, "held_by": ["x", "y"]},
            "7 min 43 s, nothing of it ran: build x, y compiled",
        ),
        (
            {"stalled_s": 463.0, "held_by": []},
            "7 min 43 s, nothing of it ran: there was no room for a compile",
        ),
    ],
)
def test_held_up(admission: Any, said: str) -> None:
    """A build that waited for others says so, one that had its turn says nothing."""
    assert held_up({"admission": admission}) == said
