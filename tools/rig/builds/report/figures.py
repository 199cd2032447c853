# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Figures over a set of compiles: who ran beside whom, and what it held. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tools.rig.builds.report.sources import Compile, Row, Sample, number

MOST_POINTS = 480
"""Points of a line; more than a screen is wide shows nothing more."""

_SAME_MOMENT_S = 0.02
"""ninja and the launcher stamp an end and the start that it allows a little apart."""


def lanes(compiles: Sequence[Compile]) -> list[int]:
    """Return a lane for each compile, in which nothing else runs meanwhile.

    The order is the compiles' own, which must be that of their starts.
    """
    free: list[float] = []
    found = []
    for one in compiles:
        fits = [i for i, end in enumerate(free) if end <= one.start_s + _SAME_MOMENT_S]
        lane = fits[0] if fits else len(free)
        free[lane : lane + 1] = [one.end_s]
        found.append(lane)
    return found


def overlap(compiles: Iterable[Compile]) -> list[tuple[float, int]]:
    """Return how many run from each moment on, as (second, number)."""
    turns = [t for c in compiles for t in ((c.start_s, 1), (c.end_s, -1))]
    found: list[tuple[float, int]] = []
    running = 0
    for at, step in sorted(turns):
        running += step
        if found and found[-1][0] == at:
            found.pop()
        found.append((at, running))
    return found


def alone_at_end(turns: Sequence[tuple[float, int]]) -> float:
    """Return for how many seconds at the end only one compile ran."""
    since = 0.0
    for (_, before), (at, running) in zip(turns, turns[1:]):
        if before > 1 and running <= 1:
            since = at
    return turns[-1][0] - since if turns and since else 0.0


def aligned(samples: Sequence[Sample], compiles: Sequence[Compile]) -> list[Sample]:
    """Return samples on the clock of the compiles.

    They count from the build's own beginning, the compiles from the first of them; the
    first sample that saw one running ties the two together, to a second. Where other
    builds ran too, only memory tells that it was this build's.
    """
    seen = next((s.t for s in samples if (s.running if s.own is None else s.own)), None)
    if seen is None or not compiles:
        shift = samples[0].t if samples else 0.0
    else:
        shift = seen - compiles[0].start_s
    moved = (replace(s, t=s.t - shift) for s in samples)
    return [s for s in moved if s.t >= 0]


def counted(samples: Sequence[Sample], compiles: Sequence[Compile]) -> list[Sample]:
    """Return samples in which this build's own compiles are counted.

    Without compiles, a sample that may have counted other builds' too tells nothing.
    """
    if not compiles:
        return [
            s if s.own is None else replace(s, running=None, waiting=None)
            for s in samples
        ]
    return [
        replace(
            s,
            running=sum(c.start_s <= s.t < c.end_s for c in compiles),
            waiting=sum(c.start_s - c.waited_s <= s.t < c.start_s for c in compiles),
        )
        for s in samples
    ]


def summed(compiles: Sequence[Compile]) -> list[Sample]:
    """Return the memory of all compiles over time, from what each held by itself."""
    told = [c for c in compiles if c.curve]
    if not told:
        return []
    end = max(c.end_s for c in told)
    times = [end * i / MOST_POINTS for i in range(MOST_POINTS + 1)]
    return [
        Sample(
            t,
            sum(_held(c, t) for c in told),
            running=sum(c.start_s <= t < c.end_s for c in compiles),
        )
        for t in times
    ]


def thinned(samples: Sequence[Sample], most: int = MOST_POINTS) -> list[Sample]:
    """Return at most `most` samples, of each stretch the one that used most."""
    if len(samples) <= most:
        return [*samples]
    first, last = samples[0].t, samples[-1].t
    width = (last - first) / most or 1.0
    best: dict[int, Sample] = {}
    for one in samples:
        key = min(most - 1, int((one.t - first) / width))
        if key not in best or one.held > best[key].held:
            best[key] = one
    return [best[key] for key in sorted(best)]


def by_folder(compiles: Sequence[Compile]) -> list[Row]:
    """Return each folder's share of the compile time, the dearest first."""
    groups = _grouped(compiles, lambda c: c.folder)
    whole = sum(c.seconds for c in compiles) or 1.0
    found = []
    for folder, members in groups.items():
        seconds = sum(c.seconds for c in members)
        peaks = [c.peak_bytes for c in members if c.peak_bytes is not None]
        found.append(
            {
                "folder": folder,
                "objects": len(members),
                "seconds": round(seconds, 3),
                "share": round(seconds / whole, 4),
                "peak_bytes": max(peaks, default=None),
            }
        )
    return sorted(found, key=lambda f: -f["seconds"])


def _grouped(
    compiles: Sequence[Compile], key: Callable[[Compile], str]
) -> dict[str, list[Compile]]:
    groups: dict[str, list[Compile]] = {}
    for one in compiles:
        groups.setdefault(key(one), []).append(one)
    return groups


def _held(one: Compile, t: float) -> float:
    if not one.start_s <= t < one.end_s:
        return 0.0
    before = [held for at, held in one.curve if at <= t - one.start_s]
    return before[-1] if before else one.curve[0][1]


def stalled(record: Mapping[str, Any]) -> Row:
    """Return how long nothing of the build ran, and who did meanwhile."""
    told = record.get("admission")
    told = told if isinstance(told, dict) else {}
    by = told.get("held_by")
    return {
        "stalled_s": number(told.get("stalled_s")) or 0.0,
        "held_by": [str(one) for one in by] if isinstance(by, list) else [],
    }
