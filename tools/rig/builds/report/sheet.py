# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is to be drawn, in numbers and labels; either way of drawing reads this. Pure.

Two widths are drawn of everything, for a screen and for a phone: one drawing that is
scaled would have letters that nobody can read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tools.rig.base.console import duration, size
from tools.rig.builds.report.sources import Row

GIB = float(1 << 30)

WIDTHS = {"wide": 1000, "narrow": 400}
"""Units, which are pixels where the drawing is shown as large as it was drawn."""

MOST_BARS = 3000
"""Compiles in a timeline; of more, the longest."""

_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_TICKS = {"wide": 8, "narrow": 4}


def sheet(facts: Mapping[str, Any]) -> Row:
    """Return what the timeline and the memory plot show; None for what lacks."""
    return {
        "widths": WIDTHS,
        "timeline": _timeline(facts["compiles"], facts["timeline"]),
        "memory": _memory(facts["memory"], facts["timeline"]["seconds"]),
    }


def ticks(seconds: float, most: int) -> list[tuple[float, str]]:
    """Return round moments with their labels, at most `most` and the zero."""
    steps = [*_STEPS_S, *(3600 * 2**i for i in range(1, 12))]
    step = next((s for s in steps if seconds / s <= most), steps[-1])
    return [
        (at * step, _moment(at * step)) for at in range(math.floor(seconds / step) + 1)
    ]


def round_values(top: float, most: int = 5) -> list[tuple[float, str]]:
    """Return round values from zero up to `top` with their labels."""
    if top <= 0:
        return [(0.0, "0")]
    rough = 10.0 ** math.floor(math.log10(top))
    step = next(
        s * rough / 10 for s in (1, 2, 5, 10, 20) if top / (s * rough / 10) <= most
    )
    return [(i * step, f"{i * step:g}") for i in range(math.floor(top / step) + 1)]


def title(one: Mapping[str, Any]) -> str:
    """Return what is said of a compile where a pointer rests on it."""
    lines = [one["name"], one["folder"], duration(one["seconds"])]
    if one["peak_bytes"] is not None:
        lines.append(f"{size(one['peak_bytes'])} at most")
    if one["state"] == "hit":
        lines.append("from the cache")
    if one["waited_s"] >= 1:
        lines.append(f"waited {duration(one['waited_s'])} for room")
    if one["attempts"] > 1:
        lines.append(f"{one['attempts']} tries")
    if one["state"] == "failed":
        lines.append(f"failed (status {one['code']})")
    return "\n".join(line for line in lines if line)


def _timeline(compiles: list[Row], line: Mapping[str, Any]) -> Row | None:
    if not compiles or not line["seconds"]:
        return None
    longest = sorted(compiles, key=lambda c: -c["seconds"])[:MOST_BARS]
    return {
        "seconds": line["seconds"],
        "lanes": line["lanes"],
        "ticks": _both(line["seconds"]),
        "bars": [
            [c["lane"], c["start_s"], c["end_s"], c["state"], c["name"], title(c)]
            for c in longest
        ],
    }


def _memory(memory: Mapping[str, Any], seconds: float) -> Row | None:
    points = memory["points"]
    if len(points) < 2:
        return None
    end = max(seconds, points[-1][0])
    budget = memory["budget_bytes"]
    top = max(memory["peak_bytes"], budget or 0) / GIB
    most = max((p[3] or 0 for p in points), default=0)
    return {
        "seconds": end,
        "ticks": _both(end),
        "values": round_values(top),
        "top": top * 1.15 or 1.0,
        "points": [
            [t, used / GIB, None if b is None else b / GIB, running]
            for t, used, b, running, _ in points
        ],
        "peak": [memory["peak_s"], memory["peak_bytes"] / GIB],
        "peak_label": f"most used {size(memory['peak_bytes'])}",
        "budget_label": "" if budget is None else f"budget {size(budget)}",
        "most_running": most,
    }


def _both(seconds: float) -> Row:
    return {name: ticks(seconds, most) for name, most in _TICKS.items()}


def _moment(seconds: float) -> str:
    if seconds == 0:
        return "0"
    if seconds < 60:
        return f"{seconds:g} s"
    if seconds < 3600 or seconds % 3600:
        return f"{seconds / 60:g} min"
    return f"{seconds / 3600:g} h"
