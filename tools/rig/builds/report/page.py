# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The page itself: one file without scripts that asks nobody for anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rig.base.console import duration, size
from tools.rig.builds.report import pieces, tables, words

STYLE = Path(__file__).parents[2] / "data" / "report.css"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(
    facts: Mapping[str, Any], drawn: Mapping[str, Mapping[str, str]], note: str = ""
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    facts
        See :func:`tools.rig.builds.report.facts.gather`.
    drawn
        SVG texts by plot and width.
    note
        What the reader should know of the report itself.
    """
    name = _name(facts)
    body = "".join(
        [
            _head(facts, name),
            _figures(facts),
            f'<p class="note">{pieces.text(note)}</p>' if note else "",
            _timeline(facts, drawn.get("timeline")),
            _memory(facts, drawn.get("memory")),
            tables.slowest(facts),
            tables.folders(facts),
            tables.cache(facts),
            tables.comparison(facts),
            tables.libraries(facts),
            tables.steps(facts),
            tables.setting(facts),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{pieces.text(name)}: build report</title>\n"
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _name(facts: Mapping[str, Any]) -> str:
    build = facts["build"]
    project = Path(str(build["checkout"] or "")).name
    version = str(build["version"] or build["commit"] or "")
    return " ".join(filter(None, (project, version))) or str(build["id"] or "build")


def _head(facts: Mapping[str, Any], name: str) -> str:
    build = facts["build"]
    bad = "" if words.finished(facts) else " bad"
    sign = "✓" if not bad else "✗"
    when = str(build["started"] or "").replace("T", " ").replace("Z", " UTC")
    told = [build["profile"], build["commit"], when]
    line = " · ".join(pieces.text(t) for t in told if t)
    error = ""
    if bad and build["error"]:
        error = f'<p class="error">{pieces.text(build["error"])}</p>'
    return (
        f'<header><p class="mark{bad}">{sign} {pieces.text(words.result(facts))}</p>'
        f'<h1>{pieces.path(name)}</h1><p class="soft">{line}</p>'
        f'<p class="lede">{pieces.text(words.lede(facts))}</p>{error}</header>'
    )


def _figures(facts: Mapping[str, Any]) -> str:
    build, line, held = facts["build"], facts["timeline"], facts["memory"]
    earlier = facts["earlier"] or {}
    work = words.made(facts)
    tiles = []
    if build["seconds"]:
        before = earlier.get("seconds") if words.finished(facts) else None
        below = f"{duration(before)} the time before" if before else ""
        tiles.append(("Whole build", duration(build["seconds"]), below))
    if work:
        hits = sum(c["state"] == "hit" for c in work)
        below = f"{hits} of them from the cache" if hits else ""
        tiles.append(("Objects", str(len(work)), below))
        below = f"{line['at_once']:.1f} at once on average"
        if line["note"]:
            below = "runs before this one included"
        tiles.append(("Compile time", duration(line["work_s"]), below))
        longest = max(work, key=lambda c: c["seconds"])
        tiles.append(("Longest", duration(longest["seconds"]), longest["name"]))
    if held["peak_bytes"]:
        budget = held["budget_bytes"]
        below = f"of a budget of {size(budget)}" if budget else ""
        tiles.append(("Most memory", size(held["peak_bytes"]), below))
    made = "".join(
        f"<div><dt>{pieces.text(title)}</dt><dd><b>{pieces.text(value)}</b>"
        f"<span>{pieces.path(below)}</span></dd></div>"
        for title, value, below in tiles
    )
    return f'<dl class="figures">{made}</dl>' if tiles else ""


def _timeline(facts: Mapping[str, Any], drawn: Mapping[str, str] | None) -> str:
    names = {
        "cuda": "CUDA",
        "cxx": "C and C++",
        "link": "link",
        "other": "other",
        "hit": "from the cache",
        "failed": "failed",
    }
    seen = {c["state"] for c in facts["compiles"]}
    key = "".join(
        f'<li><i style="background:var(--{state})"></i>{name}</li>'
        for state, name in names.items()
        if state in seen
    )
    legend = f'<ul class="key">{key}</ul>' if drawn and len(seen) > 1 else ""
    lanes = facts["timeline"]["lanes"]
    label = f"Timeline of {len(facts['compiles'])} compiles in {lanes} lanes"
    body = legend + pieces.plot(drawn, label)
    said = words.timeline(facts)
    return pieces.section("What ran when", said, body, anchor="timeline")


def _memory(facts: Mapping[str, Any], drawn: Mapping[str, str] | None) -> str:
    said = words.memory(facts)
    body = pieces.plot(drawn, f"Memory over time. {said}")
    return pieces.section("Memory", said, body, anchor="memory")
