# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The sentences of a report: what a figure means, said in front of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.rig.base.console import duration, size
from tools.rig.builds.report.sources import Row

NEAR = 0.02
"""Share of the earlier time within which a build took as long."""

_RESULTS = {
    "done": "Built",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "died": "Died",
    "running": "Still running",
}


def result(facts: Mapping[str, Any]) -> str:
    """Return how the build ended, in a word or two."""
    found = str(facts["build"]["result"] or "")
    return _RESULTS.get(found, found.capitalize() or "Unknown")


def lede(facts: Mapping[str, Any]) -> str:
    """Return what happened, in one or two sentences."""
    build, line = facts["build"], facts["timeline"]
    told = result(facts)
    if build["seconds"]:
        word = "in" if finished(facts) else "after"
        told += f" {word} {duration(build['seconds'])}"
    if build["compiles_at_once"]:
        told += f" with at most {_many(build['compiles_at_once'], 'compile')} at once"
    told += "."
    work = made(facts)
    if work and line["source"] == "events":
        hits = sum(c["state"] == "hit" for c in work)
        told += f" {_many(len(work) - hits, 'object')} compiled"
        told += f", {hits} came from the cache." if hits else "."
    before = versus(facts)
    return f"{told} {before}" if before else told


def finished(facts: Mapping[str, Any]) -> bool:
    """Say whether the build came to a good end."""
    return bool(facts["build"]["result"] == "done")


def versus(facts: Mapping[str, Any]) -> str:
    """Return how the time compares with the earlier build's, or nothing."""
    earlier, took = facts["earlier"], facts["build"]["seconds"]
    if not finished(facts) or not earlier or not earlier["seconds"] or not took:
        return ""
    difference = took - earlier["seconds"]
    if abs(difference) <= NEAR * earlier["seconds"]:
        return "That is as long as the build before took."
    more = "longer" if difference > 0 else "less"
    return f"That is {duration(abs(difference))} {more} than the build before."


def timeline(facts: Mapping[str, Any]) -> str:
    """Return what the timeline shows."""
    line = facts["timeline"]
    if not line["source"]:
        return "Nothing was compiled, or nothing was recorded of it."
    if line["note"]:
        return str(line["note"])
    told = (
        f"{duration(line['work_s'])} of compiling in {duration(line['seconds'])}: "
        f"{line['at_once']:.1f} at once on average."
    )
    if line["alone_at_end_s"] > max(5.0, 0.03 * line["seconds"]):
        told += f" For the last {duration(line['alone_at_end_s'])} one ran alone."
    if line["stalled_s"] > 5:
        told += f" For {duration(line['stalled_s'])} none ran, since "
        told += f"build {', '.join(line['held_by'])} " if line["held_by"] else "others "
        told += "had the room."
    return told


def memory(facts: Mapping[str, Any]) -> str:
    """Return what was used, against what was there to use."""
    held = facts["memory"]
    peak, budget = held["peak_bytes"], held["budget_bytes"]
    if not peak:
        return "Nobody measured the memory of this build."
    told = f"At most {size(peak)}"
    if budget:
        told += f" of {size(budget)} ({peak / budget:.0%})"
    told += " were in use at one time."
    if held["process_bytes"]:
        told += f" The largest process was {held['process_name']} with "
        told += f"{size(held['process_bytes'])}."
    others = size(held["others_bytes"]) if held["others_bytes"] else ""
    if others:
        told += f" Other builds held up to {others} at the same time."
    if budget and size(held["lowest_budget_bytes"]) != size(budget):
        told += f" The budget was lowered to {size(held['lowest_budget_bytes'])}."
    if held["samples_over"]:
        what = "all builds together were" if others else "it was"
        told += f" In {held['samples_over']} samples {what} above the budget."
    if held["source"] == "curves":
        told += " The line adds up what each compile measured of itself."
    if not held["source"]:
        told += " Its course over time was not recorded."
    if held["oom"]:
        told += f" Killed for want of memory and tried again: {', '.join(held['oom'])}."
    return told


def cache(facts: Mapping[str, Any]) -> str:
    """Return what the compile cache gave."""
    got = facts["cache"]
    if got is None:
        return "No compile cache was used, or it was not recorded."
    hits, misses = int(got.get("hits") or 0), int(got.get("misses") or 0)
    name = str(got.get("program") or "The compile cache")
    if not hits + misses:
        return f"{name} was not asked for anything."
    told = (
        f"{name} had {hits} of {hits + misses} objects ({hits / (hits + misses):.0%})."
    )
    spared = sum(
        c["earlier_s"] - c["seconds"]
        for c in facts["compiles"]
        if c["state"] == "hit" and c["earlier_s"]
    )
    if spared > 1:
        told += f" Compiling them took {duration(spared)} last time."
    if got.get("errors"):
        told += f" It met {got['errors']} errors."
    return told


def comparison(facts: Mapping[str, Any]) -> str:
    """Return how the earlier build differed."""
    earlier = facts["earlier"]
    if earlier is None:
        return (
            "There is none to compare with: no earlier build of this checkout and "
            "profile both went well and compiled anything."
        )
    told = f"The last good one that compiled anything is {earlier['id']}"
    told += f" ({earlier['commit']})." if earlier["commit"] else "."
    for one in earlier["differs"]:
        told += f" Its {_PLAIN.get(one['what'], one['what'])} was {one['earlier']},"
        told += f" now it is {one['now']}."
    if earlier["both"]:
        now, then = earlier["work_s"], earlier["earlier_work_s"]
        told += f" The {_many(earlier['both'], 'object')} that both compiled took "
        told += f"{duration(now)}, and {duration(then)} then."
    return told


def made(facts: Mapping[str, Any]) -> list[Row]:
    """Return the compiles without the links."""
    return [c for c in facts["compiles"] if c["kind"] != "link"]


def changed(now: float | None, then: float | None, unit: Any) -> str:
    """Return a difference with its sign, or ``same``; nothing where one lacks."""
    if now is None or then is None:
        return ""
    difference = now - then
    if abs(difference) <= 0.005 * then:
        return "same"
    return f"{'+' if difference > 0 else '−'}{unit(abs(difference))}"


_PLAIN = {"compiles_at_once": "number of compiles at once"}


def _many(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
