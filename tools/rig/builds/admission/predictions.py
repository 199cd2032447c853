# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a compile will take: as it did before, else as its kind of source does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import regex as re

from tools.rig.base import state
from tools.rig.base.errors import RigError
from tools.rig.builds.admission.curves import Curve

GIB = 1 << 30
MIB = 1 << 20
_FORMAT = 1
_POINTS = 48
_MOST_KEYS = 5000
_LOCK_S = 10.0
_TEACHES = 0.2
"""A compile with less than this part of the known time and memory did not compile: a
cache answered, or its source became a stub, and then it costs nothing to be wrong."""


@dataclass(frozen=True)
class Expected:
    """The curve that a compile is expected to follow, and whether it was measured."""

    curve: Curve
    known: bool


KINDS: Mapping[str, Curve] = {
    "gemm": Curve.flat(420, int(3.6 * GIB)),
    "cuda": Curve.flat(60, int(3.1 * GIB)),
    "cxx": Curve.flat(25, int(1.6 * GIB)),
    "c": Curve.flat(5, int(0.3 * GIB)),
}
"""What was never measured takes its kind's peak for all its life. Figures of the fork
with nvcc 12.4 (docs/rig/records/fork.json, fork-memory.json): Marlin and GEMM kernels
135 to 750 s and 3.0 to 3.5 GiB, other CUDA sources 5 to 290 s with a median of 33 s and
0.4 to 3.0 GiB (one 3.8), C++ with torch's headers 17 to 81 s and 1.0 to 1.6 GiB."""

_GEMM = re.compile(r"(?i)marlin|gemm|splitd|moe_wna16|grouped_mm|paged_attention")
_CUDA = re.compile(r"\.(?:cu|cuda)(?:\.o)?$")
_C = re.compile(r"\.c(?:\.o)?$")


def kind_of(name: str) -> str:
    """Return the kind of a source or an object, by its name: a key of `KINDS`."""
    if _GEMM.search(name.rpartition("/")[2]):
        return "gemm"
    if _CUDA.search(name):
        return "cuda"
    return "c" if _C.search(name) else "cxx"


LEAST: Mapping[str, int] = {"gemm": 120 * MIB, "cuda": 120 * MIB, "cxx": 16 * MIB}
"""Less than any real compile of the kind holds. The smallest CUDA source of the fork
was seen at 173 MiB, the sample's at 193."""

_TEMPORARY = re.compile(r"(?:.*/)?build/temp[^/]*/")


def key_of(output: str, folder: str = "") -> str:
    """Return the name under which an object is remembered.

    Parameters
    ----------
    output
        What the compiler was told to write (``-o``).
    folder
        Where it ran. Its path is taken away, and so is a temporary build folder's, so
        that the same object of another checkout has the same key.
    """
    if folder:
        output = output.removeprefix(folder.rstrip("/") + "/")
    return str(_TEMPORARY.sub("", output.removeprefix("./"), count=1))


@dataclass
class Predictions:
    """What is known of the compiles of one profile and one toolkit.

    ``curves`` holds one life an object; ``learnt`` names those that are newer than the
    file. The key of an object is that of :func:`key_of`.
    """

    curves: dict[str, Curve] = field(default_factory=dict)
    learnt: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, file: Path) -> Predictions:
        """Return what a file knows; nothing when it is missing or broken."""
        return cls(_read(file))

    def save(self, file: Path) -> bool:
        """Add what was learnt to a file that other builds may be writing to as well.

        Returns
        -------
        bool
            False when it could not be written: that costs the next build some time, and
            must not fail this one.
        """
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(f"{file}.lock", timeout=_LOCK_S):
                known = _read(file)
                for key in self.learnt:
                    known.pop(key, None)
                    known[key] = self.curves[key]
                kept = list(known.items())[-_MOST_KEYS:]
                objects = [[key, [list(p) for p in c.points]] for key, c in kept]
                state.write_json(file, {"format": _FORMAT, "objects": objects})
        except (OSError, filelock.Timeout, RigError):
            return False
        self.learnt.clear()
        return True

    def predict(self, key: str, kind: str = "") -> Expected:
        """Return what an object will take.

        Parameters
        ----------
        key
            See :func:`key_of`.
        kind
            A key of `KINDS`; found by the object's name when it is none.
        """
        known = self.curves.get(key)
        if known is not None:
            return Expected(known, True)
        return Expected(KINDS.get(kind) or KINDS[kind_of(key)], False)

    def learn(self, key: str, curve: Curve) -> bool:
        """Remember how a compile went, unless it cannot have been a whole one."""
        if curve.peak < LEAST.get(kind_of(key), 0):
            return False
        known = self.curves.get(key)
        if known and _is_stub(curve, known):
            return False
        self.curves[key] = _tidy(curve)
        self.learnt.add(key)
        return True

    def learn_events(self, events: Iterable[Mapping[str, Any]]) -> int:
        """Learn from the event lines of a build; return how many taught something.

        A compile that failed or was answered by the cache teaches nothing, and neither
        does a line that cannot be read.
        """
        count = 0
        for event in events:
            if event.get("code") != 0 or event.get("cache") == "hit":
                continue
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                key = key_of(str(event["object"]), str(event.get("cwd") or ""))
                seconds = float(event["seconds"])
                inside = [p for p in event["curve"] if p[0] < seconds]
                last = inside[-1][1] if inside else event["peak_bytes"]
                curve = Curve.of([*inside, (seconds, last)])
                if curve.peak < int(event["peak_bytes"]):
                    # the highest moment lay between two samples of the curve
                    curve = curve.scaled(size=event["peak_bytes"] / max(1, curve.peak))
                count += self.learn(key, curve)
        return count


def _is_stub(curve: Curve, known: Curve) -> bool:
    short = curve.duration < _TEACHES * known.duration
    return short and curve.peak < _TEACHES * known.peak


def _tidy(curve: Curve) -> Curve:
    points = curve.thinned(_POINTS).points
    return Curve(tuple((round(second, 1), size) for second, size in points))


def _read(file: Path) -> dict[str, Curve]:
    try:
        data = state.read_json(file)
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            return {}
        return {str(key): Curve.of(points) for key, points in data["objects"]}
    except (RigError, KeyError, TypeError, ValueError, OverflowError):
        # a broken file is written anew by the next build
        return {}
