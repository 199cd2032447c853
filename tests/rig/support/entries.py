# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Made-up catalogue entries, for tests of the machinery that reads logs."""

from __future__ import annotations

from typing import Any

from tools.rig.diagnose.entries import Entry, parse


def entry(
    name: str,
    pattern: str,
    *needles: str,
    role: str = "cause",
    phase: str = "compile",
    needs: tuple[Any, ...] = (),
    unless: tuple[Any, ...] = (),
    **more: Any,
) -> Entry:
    """Return an entry with one pattern; its literal is its name where none is given."""
    words = {
        "title": f"{name} happened",
        "cause": "since it had to",
        "fix": ["$ mend {venv}"],
        "check": "look",
    }
    match = {
        "needles": list(needles) or [name],
        "pattern": pattern,
        "needs": list(needs),
        "unless": list(unless),
    }
    table = {
        "id": name,
        "role": role,
        "phase": phase,
        "match": [match],
        "en": words,
        "zh": {**words, "title": f"{name} 发生"},
        "examples": [name],
        "sources": ["a test"],
        "confidence": "high",
        **more,
    }
    return parse(table)
