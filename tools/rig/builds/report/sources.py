# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build left behind, read with patience: files may lack, lines may be cut."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex as re

Row = dict[str, Any]

_ELSEWHERE = re.compile(r"^.*/build/temp[^/]*/")
_TEMP = re.compile(r"(^|/)build/temp[^/]*/")
_TARGET = re.compile(r"(^|/)CMakeFiles/[^/]+\.dir/")
_KINDS = (
    ("link", (".so", ".a")),
    ("cuda", (".cu.o", ".cuda.o", ".cu.obj")),
    ("cxx", (".cpp.o", ".cc.o", ".cxx.o", ".c.o")),
)


@dataclass(frozen=True)
class Compile:
    """One compile or link of a build.

    Times are in seconds from the build's first compile. ``kind`` is ``cuda``, ``cxx``,
    ``link`` or ``other``; ``cache`` is ``hit``, ``miss`` or empty where nobody said.
    ``curve`` holds memory in bytes at seconds since the start.
    """

    folder: str
    name: str
    kind: str
    start_s: float
    end_s: float
    waited_s: float = 0.0
    peak_bytes: int | None = None
    cache: str = ""
    code: int = 0
    attempts: int = 1
    oom: bool = False
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def seconds(self) -> float:
        """Wall time from its start to its end."""
        return self.end_s - self.start_s

    @property
    def state(self) -> str:
        """Return how it is drawn: ``failed``, ``hit``, or its kind."""
        if self.code:
            return "failed"
        return "hit" if self.cache == "hit" else self.kind


@dataclass(frozen=True)
class Sample:
    """Memory at one moment; bytes, and compiles by number.

    ``used``, ``running`` and ``waiting`` are of all builds that share the machine's
    budget, ``own`` is this build's memory; None where nobody told them apart.
    """

    t: float
    used: float
    budget: float | None = None
    running: int | None = None
    waiting: int | None = None
    own: float | None = None

    @property
    def held(self) -> float:
        """Bytes of this build, as far as they are known apart."""
        return self.used if self.own is None else self.own


def rows(file: Path) -> list[Row]:
    """Return the objects of a file with one JSON object a line; none when it lacks."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            # the last line of a build that was killed
            continue
        if isinstance(one, dict):
            found.append(one)
    return found


def of_events(events: Sequence[Mapping[str, Any]], checkout: str) -> list[Compile]:
    """Return the compiles that the launcher told of, by their start."""
    told = [e for e in events if _times(e) is not None]
    zero = origin(told)
    return sorted((_event(e, zero, checkout) for e in told), key=_when)


def origin(events: Sequence[Mapping[str, Any]]) -> float:
    """Return the clock at the first compile, in seconds of the events' own clock."""
    starts = [times[0] for e in events if (times := _times(e)) is not None]
    return min(starts, default=0.0)


def of_record(objects: object, checkout: str) -> list[Compile]:
    """Return what ninja's logs say, by start; one ninja after the other.

    Each ninja counts from its own start and is listed in the order of ends, so a time
    that goes back marks the next one.
    """
    found: list[Compile] = []
    zero = before = 0.0
    for one in objects if isinstance(objects, list) else []:
        if not isinstance(one, dict):
            continue
        start, end = (number(one.get(k)) for k in ("start_s", "end_s"))
        if start is None or end is None or end < start:
            continue
        if end < before:
            zero = max((c.end_s for c in found), default=0.0)
        before = end
        output = str(one.get("output", ""))
        peak = number(one.get("peak_bytes"))
        found.append(
            Compile(
                *placed(output, checkout),
                kind_of(output),
                zero + start,
                zero + end,
                peak_bytes=None if peak is None else int(peak),
            )
        )
    return sorted(found, key=_when)


def samples(lines: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Return the samples of memory, by time."""
    found = []
    for one in lines:
        t, used = number(one.get("t")), number(one.get("used"))
        if t is not None and used is not None:
            running, waiting = count(one.get("running")), count(one.get("waiting"))
            budget = number(one.get("budget"))
            own = number(one.get("own"))
            found.append(Sample(t, used, budget, running, waiting, own))
    return sorted(found, key=lambda s: s.t)


def placed(output: str, checkout: str) -> tuple[str, str]:
    """Return the folder and name of what an object was made from, for people.

    >>> placed("CMakeFiles/_C.dir/csrc/moe/gate.cu.o", "/home/me/project")
    ('csrc/moe', 'gate.cu')
    """
    text = output.removeprefix(f"{checkout}/") if checkout else output
    if text.startswith("/"):
        # a build folder that lies elsewhere
        text = str(_ELSEWHERE.sub("", text))
    text = str(_TEMP.sub(r"\1", text))
    text = str(_TARGET.sub(r"\1", text))
    folder, _, name = text.rpartition("/")
    return folder, name.removesuffix(".o") or output


def kind_of(output: str, said: object = "") -> str:
    """Return the kind of a step, from what the launcher said or else from its name."""
    word = str(said or "")
    if word.startswith("cuda"):
        return "cuda"
    if word in ("c", "cxx", "cpp", "c++"):
        return "cxx"
    return next((kind for kind, ends in _KINDS if output.endswith(ends)), "other")


def number(value: object) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def count(value: object) -> int | None:
    """Return how many: a number, or the length of a list."""
    if isinstance(value, list):
        return len(value)
    found = number(value)
    return None if found is None else int(found)


def _event(event: Mapping[str, Any], zero: float, checkout: str) -> Compile:
    times = _times(event)
    assert times is not None
    asked, started, ended = times
    output = str(event.get("object", ""))
    peak = number(event.get("peak_bytes"))
    curve = event.get("curve")
    points = curve if isinstance(curve, list) else []
    return Compile(
        *placed(output, checkout),
        kind_of(output, event.get("kind")),
        started - zero,
        ended - zero,
        waited_s=max(0.0, started - asked),
        peak_bytes=None if peak is None else int(peak),
        cache=str(event.get("cache") or ""),
        code=int(number(event.get("code")) or 0),
        attempts=int(number(event.get("attempts")) or 1),
        oom=event.get("oom") is True,
        curve=tuple(p for p in map(_point, points) if p is not None),
    )


def _times(event: Mapping[str, Any]) -> tuple[float, float, float] | None:
    started, ended = number(event.get("started")), number(event.get("ended"))
    if started is None or ended is None or ended < started:
        return None
    asked = number(event.get("asked"))
    return (started if asked is None else min(asked, started)), started, ended


def _point(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    at, held = number(value[0]), number(value[1])
    return None if at is None or held is None else (at, held)


def _when(one: Compile) -> tuple[float, float]:
    return one.start_s, one.end_s
