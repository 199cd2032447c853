# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Draws a sheet without matplotlib: less fine, for a machine that cannot have it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tools.rig.builds.report.sources import Row

_FOOT = 22
_MEMORY_HIGH = 220


def drawings(sheet: Row) -> dict[str, dict[str, str]]:
    """Return SVG texts by plot and width, as the script with matplotlib does."""
    made: dict[str, dict[str, str]] = {}
    for name, draw in (("timeline", _timeline), ("memory", _memory)):
        if sheet[name] is not None:
            made[name] = {
                width: draw(sheet[name], width, units)
                for width, units in sheet["widths"].items()
            }
    return made


def _timeline(data: Row, width: str, units: int) -> str:
    lane = min(26.0, max(7.0, 420 / data["lanes"]))
    high = lane * data["lanes"]
    scale = units / data["seconds"]
    parts = [_times(data["ticks"][width], scale, high, units)]
    for row, start, end, state, _, title in data["bars"]:
        parts.append(
            f'<rect x="{start * scale:.1f}" y="{row * lane + 0.5:.1f}" '
            f'width="{max(0.5, (end - start) * scale):.1f}" height="{lane - 1:.1f}" '
            f'style="fill:var(--{state})"><title>{escape(title)}</title></rect>'
        )
    return _svg(parts, units, high + _FOOT)


def _memory(data: Row, width: str, units: int) -> str:
    high = float(_MEMORY_HIGH)
    across, up = units / data["seconds"], high / data["top"]
    points = data["points"]
    used = " ".join(f"{t * across:.1f},{high - u * up:.1f}" for t, u, *_ in points)
    last = points[-1][0] * across
    area = f"{points[0][0] * across:.1f},{high} {used} {last:.1f},{high}"
    parts = [
        _times(data["ticks"][width], across, high, units),
        f'<polygon points="{area}" style="fill:var(--fill)"/>',
        f'<polyline points="{used}" style="fill:none;stroke:var(--cuda)"/>',
    ]
    if data["budget_label"]:
        told = [(t * across, high - b * up) for t, _, b, _ in points if b is not None]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in told)
        parts.append(
            f'<polyline points="{line}" '
            'style="fill:none;stroke:var(--budget);stroke-dasharray:5 3"/>'
        )
        label = data["budget_label"]
        parts.append(_text(label, 4, told[0][1] - 5, "budget"))
    at, peak = data["peak"]
    anchor = "end" if at > data["seconds"] / 2 else "start"
    x, y = at * across, max(12.0, high - peak * up - 5)
    parts.append(_text(data["peak_label"], x, y, "ink", anchor))
    return _svg(parts, units, high + _FOOT)


def _times(
    ticks: Sequence[Sequence[Any]], scale: float, high: float, units: int
) -> str:
    parts = []
    for at, label in ticks:
        x = at * scale
        anchor = "start" if at == 0 else "end" if x > 0.96 * units else "middle"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{high:.1f}" '
            'style="stroke:var(--line)"/>'
        )
        parts.append(_text(label, x, high + 16, "soft", anchor))
    return "".join(parts)


def _text(text: str, x: float, y: float, color: str, anchor: str = "start") -> str:
    return (
        f'<text class="label" x="{x:.1f}" y="{y:.1f}" '
        f'style="fill:var(--{color});font-size:12px;text-anchor:{anchor}">'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], units: int, high: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {units} {high:.0f}">'
        f"{''.join(parts)}</svg>"
    )
