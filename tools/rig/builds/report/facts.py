# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Everything that a report says, as plain data: the page and ``--json`` show it. Pure.

Bytes and seconds throughout; a figure that nobody recorded is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.rig.base import redact
from tools.rig.builds.report import figures
from tools.rig.builds.report.sources import (
    Compile,
    Row,
    Sample,
    number,
    of_events,
    of_record,
    samples,
)

CHANGED = 0.15
"""Share of its earlier time by which a compile must differ to be called changed."""

CHANGED_S = 1.0
"""And by how many seconds."""

_TOLD = (
    "id version commit profile result exit_code started seconds error log command "
    "checkout environment wheel machine notes"
)

_SETTINGS = ("profile", "toolchain", "compiles_at_once", "mode")


def gather(
    record: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    *,
    events: Sequence[Mapping[str, Any]] = (),
    memory: Sequence[Mapping[str, Any]] = (),
    earlier_events: Sequence[Mapping[str, Any]] = (),
) -> Row:
    """Return the facts of a report, secrets masked.

    Parameters
    ----------
    record
        A build's record; of any age, and of a build that failed too.
    earlier
        The record to compare with.
    events, memory
        What the launcher and the watch wrote for this build.
    earlier_events
        What the launcher wrote for the earlier build.
    """
    compiles = _compiles(record, events)
    before = _times(_compiles(earlier, earlier_events)) if earlier else {}
    facts = {
        "build": _build(record),
        "steps": [s for s in record.get("steps") or [] if isinstance(s, dict)],
        "compiles": _rows(compiles, before),
        "timeline": _timeline(record, compiles, bool(events)),
        "memory": _memory(record, compiles, samples(memory), bool(events)),
        "folders": figures.by_folder([c for c in compiles if c.kind != "link"]),
        "cache": _cache(record, compiles),
        "libraries": _libraries(record, earlier),
        "earlier": _earlier(record, earlier, compiles, before),
    }
    masked: Row = _masked(facts)
    return masked


def libraries_of(record: Mapping[str, Any]) -> list[Row]:
    """Return the libraries that the proof of a build looked at."""
    proof = record.get("verify")
    found = proof.get("libraries") if isinstance(proof, dict) else None
    listed = found or record.get("libraries")
    if not isinstance(listed, list):
        return []
    return [lib for lib in listed if isinstance(lib, dict) and "name" in lib]


def compiled(record: Mapping[str, Any], *, cached: bool = True) -> bool:
    """Say whether a build compiled anything.

    Parameters
    ----------
    cached
        Whether what came from the cache counts.
    """
    if "admission" not in record:
        return bool(record.get("objects"))
    told = record["admission"]
    told = told if isinstance(told, dict) else {}
    made, hits = (number(told.get(name)) or 0 for name in ("compiles", "hits"))
    return made > (0 if cached else hits)


def _build(record: Mapping[str, Any]) -> Row:
    plan = record.get("plan") if isinstance(record.get("plan"), dict) else {}
    assert isinstance(plan, dict)
    told = {name: record.get(name) for name in _TOLD.split()}
    jobs = number(plan.get("jobs", record.get("jobs")))
    # ninja starts all that may wait for admission: its number is not what runs
    only = None if "admission" in record else jobs
    most = number(plan.get("compiles_at_once", only))
    return told | {
        "toolchain": plan.get("toolchain", record.get("toolchain")),
        "mode": plan.get("mode"),
        "jobs": None if jobs is None else int(jobs),
        "compiles_at_once": None if most is None else int(most),
        "jobs_why": plan.get("jobs_why"),
    }


def _compiles(
    record: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> list[Compile]:
    checkout = str(record.get("checkout") or "")
    told = of_events(events, checkout)
    if told or "admission" in record:
        # every compile asked for admission; ninja's log has those of earlier runs too
        return told
    return of_record(record.get("objects"), checkout)


def _rows(compiles: Sequence[Compile], before: Mapping[Any, float]) -> list[Row]:
    return [
        {
            "folder": c.folder,
            "name": c.name,
            "kind": c.kind,
            "state": c.state,
            "lane": lane,
            "start_s": round(c.start_s, 3),
            "end_s": round(c.end_s, 3),
            "seconds": round(c.seconds, 3),
            "waited_s": round(c.waited_s, 3),
            "peak_bytes": c.peak_bytes,
            "cache": c.cache,
            "code": c.code,
            "attempts": c.attempts,
            "oom": c.oom,
            "earlier_s": before.get((c.folder, c.name)),
        }
        for c, lane in zip(compiles, figures.lanes(compiles), strict=True)
    ]


def _timeline(
    record: Mapping[str, Any], compiles: Sequence[Compile], told: bool
) -> Row:
    turns = figures.overlap(compiles)
    work = sum(c.seconds for c in compiles)
    wall = max((c.end_s for c in compiles), default=0.0)
    return {
        "source": ("events" if told else "ninja") if compiles else "",
        "lanes": 1 + max(figures.lanes(compiles), default=-1),
        "seconds": round(wall, 3),
        "work_s": round(work, 3),
        "at_once": round(work / wall, 3) if wall else 0.0,
        "alone_at_end_s": round(figures.alone_at_end(turns), 3),
        "waited_s": round(sum(c.waited_s for c in compiles), 3),
        **figures.stalled(record),
        "note": "" if told else _doubt(record, turns, work),
    }


def _doubt(
    record: Mapping[str, Any], turns: Sequence[tuple[float, int]], work: float
) -> str:
    """Say why times of ninja's log cannot all be of this build, when they cannot."""
    jobs = _build(record)["jobs"]
    steps = record.get("steps") or []
    took = sum(
        number(s.get("seconds")) or 0.0
        for s in steps
        if isinstance(s, dict) and s.get("title") == "build the wheel"
    )
    most = max((running for _, running in turns), default=0)
    if jobs and (most > jobs or (took and work > 1.1 * jobs * took)):
        return (
            "These times come from ninja's log, which keeps the last compile of every "
            "object. Some are from earlier runs, each of which counted from its own "
            "start, so what stands side by side here need not have run side by side."
        )
    return ""


def _memory(
    record: Mapping[str, Any],
    compiles: Sequence[Compile],
    seen: Sequence[Sample],
    told: bool,
) -> Row:
    moved = figures.counted(figures.aligned(seen, compiles), compiles if told else [])
    source = "samples" if moved else ""
    if not moved:
        moved = figures.summed(compiles)
        source = "curves" if moved else ""
    peaks = record.get("peaks") if isinstance(record.get("peaks"), dict) else {}
    assert isinstance(peaks, dict)
    top = max(moved, key=lambda s: s.held, default=None)
    budgets = [s.budget for s in moved if s.budget is not None]
    over = [s for s in moved if s.budget is not None and s.used > s.budget]
    return {
        "source": source,
        "points": [
            [round(s.t, 1), s.held, s.budget, s.running, s.waiting]
            for s in figures.thinned(moved)
        ],
        "peak_s": None if top is None else round(top.t, 1),
        "peak_bytes": number(peaks.get("total_bytes")) if top is None else top.held,
        "others_bytes": max((s.used - s.held for s in moved), default=0) or None,
        "process_bytes": number(peaks.get("process_bytes")),
        "process_name": str(peaks.get("process_name") or ""),
        "budget_bytes": max(budgets, default=None),
        "lowest_budget_bytes": min(budgets, default=None),
        "samples_over": len(over),
        "oom": [f"{c.folder}/{c.name}" for c in compiles if c.oom],
    }


def _cache(record: Mapping[str, Any], compiles: Sequence[Compile]) -> Row | None:
    """Return what the compile cache counted, else what the launchers saw of it."""
    for name in ("compile_cache", "cache"):
        counted = record.get(name)
        if isinstance(counted, dict) and number(counted.get("hits")) is not None:
            return counted
    told = [c.cache for c in compiles if c.cache in ("hit", "miss")]
    if not told:
        return None
    return {"program": "", "hits": told.count("hit"), "misses": told.count("miss")}


def _libraries(
    record: Mapping[str, Any], earlier: Mapping[str, Any] | None
) -> list[Row]:
    steps = of_record(record.get("objects"), "")
    links = {s.name: round(s.seconds, 3) for s in steps if s.kind == "link"}
    sizes = {lib["name"]: lib.get("size") for lib in libraries_of(earlier or {})}
    found = [
        {
            "name": str(lib["name"]),
            "size": number(lib.get("size")),
            "earlier_size": number(sizes.get(lib["name"])),
            "link_s": links.get(str(lib["name"]).rpartition("/")[2]),
            "sms": [*(lib.get("sms") or [])],
            "ptx": [*(lib.get("ptx") or [])],
            "verdict": str(lib.get("verdict") or ""),
        }
        for lib in libraries_of(record)
    ]
    return sorted(found, key=lambda lib: -(lib["size"] or 0))


def _times(compiles: Sequence[Compile]) -> dict[tuple[str, str], float]:
    """Return how long objects took; a cached or a failed one tells nothing."""
    real = (c for c in compiles if c.state not in ("hit", "failed", "link"))
    return {(c.folder, c.name): round(c.seconds, 3) for c in real}


def _earlier(
    record: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    compiles: Sequence[Compile],
    before: Mapping[tuple[str, str], float],
) -> Row | None:
    """Return what differs from the earlier build."""
    if earlier is None:
        return None
    now = _times(compiles)
    both: list[Row] = [
        {"folder": at[0], "name": at[1], "seconds": took, "earlier_s": before[at]}
        for at, took in now.items()
        if at in before
    ]
    moved = [
        one
        for one in both
        if abs(one["seconds"] - one["earlier_s"])
        > max(CHANGED_S, CHANGED * one["earlier_s"])
    ]
    moved.sort(key=lambda one: one["earlier_s"] - one["seconds"])
    made = [c for c in compiles if c.kind != "link"]
    here = {(c.folder, c.name) for c in made}
    fresh = {(c.folder, c.name) for c in made if c.state != "hit"}
    mine, its = _build(record), _build(earlier)
    differs = [n for n in _SETTINGS if None not in (mine[n], its[n])]
    differs = [n for n in differs if mine[n] != its[n]]
    return {
        **{n: its[n] for n in ("id", "version", "commit", "started", "seconds")},
        "differs": [{"what": n, "now": mine[n], "earlier": its[n]} for n in differs],
        "both": len(both),
        "work_s": round(sum(one["seconds"] for one in both), 3),
        "earlier_work_s": round(sum(one["earlier_s"] for one in both), 3),
        "slower": [one for one in moved if one["seconds"] > one["earlier_s"]],
        "faster": [one for one in moved if one["seconds"] < one["earlier_s"]][::-1],
        "new": sorted("/".join(at) for at in fresh - before.keys()),
        "not_compiled": sorted("/".join(at) for at in before.keys() - here),
    }


def _masked(data: Any) -> Any:
    if isinstance(data, str):
        return redact.text(data)
    if isinstance(data, dict):
        return {key: _masked(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_masked(value) for value in data]
    return data
