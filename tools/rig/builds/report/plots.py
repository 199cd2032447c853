# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Draws a sheet with matplotlib: a script for an environment that has it.

It reads a sheet as JSON from standard input and writes the drawings as JSON, and it may
use nothing but matplotlib and the standard library. Colours are names that the page
gives a value for, so that one drawing serves by day and by night; letters stay letters.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from typing import Any
from xml.etree import ElementTree

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
LETTER = 0.63
"""Mean width of a letter, as a part of its height."""

# matplotlib knows real colours alone: each of these stands for a name of the page's
NAMES = [
    "ink",
    "soft",
    "line",
    "cuda",
    "cxx",
    "link",
    "other",
    "hit",
    "failed",
    "on-bar",
    "on-hit",
    "budget",
    "fill",
    "quiet",
    "paper",
]
COLOR = {name: f"#0a0b{10 + i:02x}" for i, name in enumerate(NAMES)}


def main() -> None:
    """Read, draw, write."""
    sheet = json.load(sys.stdin)
    json.dump(drawings(sheet), sys.stdout)


def drawings(sheet: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return SVG texts by plot and width."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "rig",
            "font.size": 12,
            "text.parse_math": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "axes.edgecolor": COLOR["line"],
            "text.color": COLOR["ink"],
            "xtick.color": COLOR["soft"],
            "ytick.color": COLOR["soft"],
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "grid.color": COLOR["line"],
            "grid.linewidth": 1,
        }
    )
    made: dict[str, dict[str, str]] = {}
    for name, draw in (("timeline", timeline), ("memory", memory)):
        if sheet[name] is not None:
            made[name] = {
                width: draw(sheet[name], width, units)
                for width, units in sheet["widths"].items()
            }
    return made


def timeline(data: dict[str, Any], width: str, units: int) -> str:
    """Draw one row a lane, one bar a compile."""
    figures = importlib.import_module("matplotlib.figure")
    patches = importlib.import_module("matplotlib.patches")
    lane = min(26.0, max(7.0, 420 / data["lanes"]))
    high = lane * data["lanes"] + 26
    figure = figures.Figure(figsize=(units / 72, high / 72))
    axes = figure.add_axes((0.002, 26 / high, 0.996, 1 - 26 / high))
    axes.set_xlim(0, data["seconds"])
    axes.set_ylim(data["lanes"], 0)
    axes.set_yticks([])
    _time(axes, data["ticks"][width])
    titles = {}
    letters = min(12.0, lane * 0.62)
    for number, (row, start, end, state, label, title) in enumerate(data["bars"]):
        name = f"c{number}"
        titles[name] = title
        wide = max(end - start, 1.2 * data["seconds"] / units)
        # an edge would hide what is hardly wider than itself
        edge = 0.8 if wide > 4 * data["seconds"] / units else 0.0
        bar = patches.Rectangle(
            (start, row + 0.06),
            wide,
            0.88,
            facecolor=COLOR[state],
            edgecolor=COLOR["paper"],
            linewidth=edge,
            gid=name,
        )
        axes.add_patch(bar)
        room = (end - start) / data["seconds"] * units - 8
        text = fitting(label, room, letters) if letters > 7 else ""
        if text:
            on = "on-hit" if state == "hit" else "on-bar"
            axes.text(
                start + 4 * data["seconds"] / units,
                row + 0.52,
                text,
                va="center_baseline",
                fontsize=letters,
                color=COLOR[on],
                gid=f"{name}t",
                clip_on=True,
            )
            titles[f"{name}t"] = title
    return _svg(figure, f"timeline-{width}", titles)


def memory(data: dict[str, Any], width: str, units: int) -> str:
    """Draw what was used against the budget, and below how many compiles ran."""
    figures = importlib.import_module("matplotlib.figure")
    counted = data["most_running"] > 0
    high = 330 if counted else 250
    # as wide as the timeline, so that an eye can run down from one to the other
    left, across = 0.002, 0.996
    foot, low = 26 / high, 70 / high if counted else 0.0
    gap = 34 / high if counted else 0.0
    figure = figures.Figure(figsize=(units / 72, high / 72))
    base = foot + low + gap
    upper = figure.add_axes((left, base, across, 1 - base - 24 / high))
    times = [p[0] for p in data["points"]]
    used = [p[1] for p in data["points"]]
    upper.fill_between(times, used, color=COLOR["fill"], linewidth=0)
    upper.plot(times, used, color=COLOR["cuda"], linewidth=1.6)
    upper.set_xlim(0, data["seconds"])
    upper.set_ylim(0, data["top"])
    _heights(upper, [v for v in data["values"] if v[0]])
    upper.set_title("Memory of this build's compiles, GiB", loc="left")
    _labels(upper, data)
    if counted:
        lower = figure.add_axes((left, foot, across, low))
        running = [p[3] or 0 for p in data["points"]]
        lower.fill_between(
            times, running, step="post", color=COLOR["quiet"], linewidth=0
        )
        lower.set_xlim(0, data["seconds"])
        lower.set_ylim(0, data["most_running"] * 1.05)
        lower.set_yticks([])
        most = f"Compiles at once, at most {data['most_running']}"
        lower.set_title(most, loc="left")
        _time(lower, data["ticks"][width])
        upper.set_xticks([])
    else:
        _time(upper, data["ticks"][width])
    for axes in figure.axes:
        axes.title.set_fontsize(12)
        axes.title.set_color(COLOR["soft"])
    return _svg(figure, f"memory-{width}", {})


def fitting(label: str, room: float, letters: float) -> str:
    """Return as much of a label as fits, or nothing where that says nothing."""
    fit = int(room / (letters * LETTER))
    if len(label) <= fit:
        return label
    return label[: fit - 1] + "…" if fit >= 7 else ""


def _labels(axes: Any, data: dict[str, Any]) -> None:
    """Write beside the lines what they are; the two labels keep out of each other."""
    at, peak = data["peak"]
    right = at > data["seconds"] / 2
    if data["budget_label"]:
        told = [(p[0], p[2]) for p in data["points"] if p[2] is not None]
        axes.step(
            [t for t, _ in told],
            [b for _, b in told],
            where="post",
            color=COLOR["budget"],
            linewidth=1.6,
            linestyle=(0, (5, 3)),
        )
        end, side = (told[0], "left") if right else (told[-1], "right")
        axes.annotate(
            data["budget_label"],
            end,
            # beside the values of the axis
            xytext=(40 if right else 0, 4),
            textcoords="offset points",
            ha=side,
            va="bottom",
            color=COLOR["budget"],
            gid="label-budget",
        )
    axes.plot([at], [peak], "o", color=COLOR["cuda"], markersize=5)
    axes.annotate(
        data["peak_label"],
        (at, peak),
        xytext=(-7 if right else 7, 4),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom",
        color=COLOR["ink"],
        gid="label-peak",
    )


def _heights(axes: Any, values: list[Any]) -> None:
    """Rule lines at values, each with its value on it."""
    axes.set_yticks([v for v, _ in values], ["" for _ in values])
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    for number, (value, label) in enumerate(values):
        axes.annotate(
            label,
            (0, value),
            xytext=(1, 2),
            textcoords="offset points",
            va="bottom",
            color=COLOR["soft"],
            gid=f"label-{value}-{number}",
        )


def _time(axes: Any, ticks: list[list[Any]]) -> None:
    axes.set_xticks([t for t, _ in ticks], [label for _, label in ticks])
    labels = axes.get_xticklabels()
    labels[0].set_ha("left")
    if ticks[-1][0] > 0.96 * axes.get_xlim()[1]:
        labels[-1].set_ha("right")
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _svg(figure: Any, name: str, titles: dict[str, str]) -> str:
    """Return a drawing that can stand in a page with others."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(out.getvalue())
    for side in ("width", "height"):
        root.attrib.pop(side, None)
    for parent in [*root.iter()]:
        for child in [*parent]:
            # rules that would hold for the whole page, and who made the file
            if child.tag.endswith(("}style", "}metadata")):
                parent.remove(child)
    for node in root.iter():
        own = node.attrib.get("id", "")
        if own in titles:
            title = ElementTree.Element(f"{{{SVG}}}title")
            title.text = titles[own]
            node.insert(0, title)
        for key, value in node.attrib.items():
            node.attrib[key] = _named(_own(key, value, name))
    return ElementTree.tostring(root, encoding="unicode")


def _own(key: str, value: str, name: str) -> str:
    """Make an id, or what points at one, the drawing's own."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    return value.replace("url(#", f"url(#{name}-")


def _named(value: str) -> str:
    for name, color in COLOR.items():
        value = value.replace(color, f"var(--{name})")
    return value


if __name__ == "__main__":
    main()
