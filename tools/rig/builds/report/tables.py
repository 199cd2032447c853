# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The tables of a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.rig.base.console import duration, size
from tools.rig.builds.report import pieces, words
from tools.rig.builds.report.pieces import bar, lead, section, table, text, thing
from tools.rig.builds.report.sources import Row
from tools.rig.builds.verdicts import GOOD, names_of

SHOWN = 15
"""Rows of a table before the rest of it is folded or summed."""

MOST_ROWS = 1000
"""Rows of a folded table; a browser draws no more with pleasure."""


def slowest(facts: Mapping[str, Any]) -> str:
    """Return the compiles that took longest, and all of them folded."""
    ordered = sorted(words.made(facts), key=lambda c: -c["seconds"])
    if not ordered:
        return ""
    first = ordered[:SHOWN]
    share = sum(c["seconds"] for c in first) / sum(c["seconds"] for c in ordered)
    said = ""
    if len(ordered) > SHOWN:
        said = f"The {SHOWN} slowest of {len(ordered)} objects are {share:.0%} of the "
        said += "compile time."
    body = _compiles(first, "Slowest objects", bars=True)
    if len(ordered) > SHOWN:
        whole = _compiles(ordered[:MOST_ROWS], "All objects", bars=False)
        body += pieces.more(f"All {len(ordered)} objects", whole)
    return section("Slowest objects", said, body, anchor="slowest")


def folders(facts: Mapping[str, Any]) -> str:
    """Return what each folder costs."""
    listed = facts["folders"]
    if len(listed) < 2:
        return ""
    shown, rest = listed[:SHOWN], listed[SHOWN:]
    if rest:
        peaks = [f["peak_bytes"] for f in rest if f["peak_bytes"] is not None]
        shown = [
            *shown,
            {
                "folder": f"{len(rest)} more folders",
                "objects": sum(f["objects"] for f in rest),
                "seconds": sum(f["seconds"] for f in rest),
                "share": sum(f["share"] for f in rest),
                "peak_bytes": max(peaks, default=None),
            },
        ]
    most = max(f["share"] for f in shown) or 1.0
    rows = [
        (
            *lead(f["folder"] or "(top)", "", f["share"] / most),
            text(duration(f["seconds"])),
            f"{f['share']:.0%}",
            text(f["objects"]),
            _size(f["peak_bytes"]),
        )
        for f in shown
    ]
    head = ("Folder", "-", "Time", "Share", "Objects", "-Most memory")
    made = table(head, rows, "Compile time by folder")
    return section("Cost by folder", "", made, anchor="folders")


def cache(facts: Mapping[str, Any]) -> str:
    """Return what the compile cache gave."""
    body = ""
    got = facts["cache"]
    if got is not None:
        hits, misses = int(got.get("hits") or 0), int(got.get("misses") or 0)
        if hits + misses:
            body = bar(hits / (hits + misses)).replace('"bar"', '"bar tall"')
    return section("Compile cache", words.cache(facts), body, anchor="cache")


def comparison(facts: Mapping[str, Any]) -> str:
    """Return which compiles changed since the earlier build."""
    earlier = facts["earlier"]
    said = words.comparison(facts)
    if earlier is None:
        return section("Against the build before", said, "", anchor="comparison")
    body = ""
    for word in ("slower", "faster"):
        if earlier[word]:
            shown = earlier[word][: SHOWN - 5]
            body += f"<h3>{len(earlier[word])} {word}</h3>"
            body += _changes(shown, f"Objects that were {word}")
    for word, listed in (
        ("compiled now and not then", earlier["new"]),
        ("compiled then and not now", earlier["not_compiled"]),
    ):
        if listed:
            names = "".join(f"<li>{pieces.path(n)}</li>" for n in listed[:MOST_ROWS])
            body += pieces.more(f"{len(listed)} {word}", f"<ul>{names}</ul>")
    return section("Against the build before", said, body, anchor="comparison")


def libraries(facts: Mapping[str, Any]) -> str:
    """Return the libraries with their sizes and what they hold."""
    listed = facts["libraries"]
    if not listed:
        return ""
    most = max(lib["size"] or 0 for lib in listed) or 1
    rows = [
        (
            *lead(*_split(lib["name"]), (lib["size"] or 0) / most),
            _size(lib["size"]),
            text(words.changed(lib["size"], lib["earlier_size"], size)),
            "" if lib["link_s"] is None else text(duration(lib["link_s"])),
            _code(lib),
        )
        for lib in listed
    ]
    whole = sum(lib["size"] or 0 for lib in listed)
    head = ("Library", "-", "Size", "-Change", "-Link", "GPU code")
    said = f"{len(listed)} libraries of {size(whole)} in all."
    made = table(head, rows, "Libraries")
    return section("Libraries", said, made, anchor="libraries")


def steps(facts: Mapping[str, Any]) -> str:
    """Return how long each step of the build took."""
    listed = facts["steps"]
    if not listed:
        return ""
    most = max(s.get("seconds") or 0 for s in listed) or 1
    rows = [
        (
            *lead(str(s.get("title")), "", (s.get("seconds") or 0) / most, _state(s)),
            text(duration(s.get("seconds") or 0))
            + ("" if s.get("result") == "done" else f" {text(s.get('result'))}"),
        )
        for s in listed
    ]
    made = table(("Step", "-", "Time"), rows, "Steps of the build")
    return section("Steps", "", made, anchor="steps")


def setting(facts: Mapping[str, Any]) -> str:
    """Return what the build was made with and from."""
    build = facts["build"]
    most = build["compiles_at_once"]
    why = build["jobs_why"]
    why = f"{most} ({why})" if most and why else most or why
    rows = [
        ("Build", build["id"]),
        ("Command", build["command"]),
        ("Toolchain", build["toolchain"]),
        ("Machine", build["machine"]),
        ("Compiles at once", why),
        ("Checkout", build["checkout"]),
        ("Environment", build["environment"]),
        ("Wheel", build["wheel"]),
        ("Work-rounds", "; ".join(map(str, build["notes"] or []))),
        ("Log", build["log"]),
    ]
    return section("How it was built", "", pieces.pairs(rows), anchor="setting")


def _compiles(listed: Sequence[Row], label: str, *, bars: bool) -> str:
    most = max(c["seconds"] for c in listed) or 1.0
    before = any(c["earlier_s"] is not None for c in listed)
    memory = any(c["peak_bytes"] is not None for c in listed)
    head = ["Object", *(["-"] if bars else []), "Time"]
    head += ["Memory"] if memory else []
    head += ["-Change"] if before else []
    rows = []
    for c in listed:
        if bars:
            row = [*lead(c["name"], c["folder"], c["seconds"] / most, c["state"])]
        else:
            row = [thing(c["name"], c["folder"])]
        row.append(text(duration(c["seconds"])))
        row += [_size(c["peak_bytes"])] if memory else []
        if before:
            cached = c["state"] == "hit"
            change = words.changed(c["seconds"], c["earlier_s"], duration)
            row.append("from cache" if cached else text(change))
        rows.append(row)
    return table(head, rows, label)


def _changes(listed: Sequence[Row], label: str) -> str:
    rows = [
        (
            thing(c["name"], c["folder"]),
            text(duration(c["seconds"])),
            text(duration(c["earlier_s"])),
            text(words.changed(c["seconds"], c["earlier_s"], duration)),
        )
        for c in listed
    ]
    return table(("Object", "Now", "-Then", "Change"), rows, label)


def _code(lib: Row) -> str:
    held = names_of(lib["sms"]) if lib["sms"] else ""
    held += f" ptx {names_of(lib['ptx'])}" if lib["ptx"] else ""
    if lib["verdict"] in GOOD or not lib["verdict"]:
        return text(held or "none" if lib["verdict"] else held)
    return f'<span class="wrong">✗ {text(lib["verdict"])}</span> {text(held)}'


def _state(step: Row) -> str:
    return "link" if step.get("result") == "done" else "failed"


def _size(value: float | None) -> str:
    return "" if value is None else text(size(value))


def _split(name: str) -> tuple[str, str]:
    folder, _, last = name.rpartition("/")
    return last, folder
