# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Replays the recorded build of the fork with and without admission.

    python benchmarks/rig/admission.py [--gib 30] [--cores 20 40] [--seeds 0] [--jobs 1]

Prints, for each number of cores: fixed jobs by the article's rule, cores only, this
admission with exact predictions, and with as many seeds as asked, where the real time
and the real memory of every compile are off by up to a fifth either way, each by
itself. Beside them the lower bound: the longest step, the memory-time over the budget,
the work over the cores; of a seed it is that of its real lives. The figures say nothing
of a machine that swaps, nor of one whose cores slow each other down. Exit code 1 when a
goal is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import multiprocessing
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.rig import replay
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Expected

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rig"
RECORD = DOCS / "records" / "fork-replay.json"
GIB = 1 << 30
MIB = 1 << 20
GIB_A_JOB = 4
OTHERS_GIB = 4
"""What the article leaves to everything else: 30 GiB are 26 for compiles."""
UNSAMPLED = ((240.0, 3.9 * GIB), (0.0, 2.2 * GIB))
"""Peak of a step whose memory was not sampled, by the seconds it takes at least."""
ERROR = 0.2
BOUND_GOAL = 1.10
BASE_GOAL = 0.60


def steps_of(record: Mapping[str, Any]) -> list[replay.Step]:
    """Return the steps of a record, in ninja's order, each with a life.

    The seconds are the record's. The memory over time is that of the same object where
    a curve of it was recorded; else of the object of the same file name in another
    folder; else of the recorded one that is nearest in its time. It is stretched to the
    seconds, and to the peak where one was sampled (else the curve's own peak if it is
    of the same object or name, else `UNSAMPLED`).
    """
    curves = {k: Curve.of(v).scaled(size=MIB) for k, v in record["curves"].items()}
    by_name = {key.rpartition("/")[2]: curve for key, curve in curves.items()}
    steps: list[replay.Step] = []
    objects: set[str] = set()
    for one in sorted(record["objects"], key=lambda one: one["start_s"]):
        key, seconds = one["output"], one["end_s"] - one["start_s"]
        if not key.endswith(".o"):
            life = Curve.flat(seconds, 200 * MIB)
            steps.append(replay.Step(key, life, _linked(key, objects), link=True))
            continue
        objects.add(key)
        own = curves.get(key) or by_name.get(key.rpartition("/")[2])
        near = min(curves.values(), key=lambda c: abs(math.log(c.duration / seconds)))
        peak = (one["peak_mib"] or 0) * MIB or (own.peak if own else unsampled(seconds))
        shape = own or near
        life = shape.scaled(seconds / shape.duration, peak / shape.peak)
        steps.append(replay.Step(key, life))
    return steps


def unsampled(seconds: float) -> float:
    """Return the peak of a step whose memory nobody saw."""
    return next(size for least, size in UNSAMPLED if seconds >= least)


def _linked(library: str, objects: set[str]) -> frozenset[str]:
    """Return the objects that a library is linked from: those of its CMake target."""
    folder, _, name = library.rpartition("/")
    target = f"{folder + '/' if folder else ''}CMakeFiles/{name.split('.')[0]}.dir/"
    return frozenset(key for key in objects if key.startswith(target))


def off(steps: Sequence[replay.Step], seed: int) -> list[replay.Step]:
    """Return the steps with real lives that are not as predicted."""
    dice = random.Random(seed)
    real = []
    for step in steps:
        longer, larger = (1 + dice.uniform(-ERROR, ERROR) for _ in range(2))
        real.append(
            replay.Step(
                step.key, step.life.scaled(longer, larger), step.needs, step.link
            )
        )
    return real


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of one seed: time over its own bound, peak over the budget."""

    seed: int
    ratio: float
    fill: float


def trial(steps: Sequence[replay.Step], budget: int, cores: int, seed: int) -> Trial:
    """Replay one seed: the admission sees `steps`, and the real lives are others."""
    expected = {step.key: Expected(step.life, True) for step in steps}
    real = off(steps, seed)
    outcome = replay.admitted(real, expected, budget, cores)
    least = replay.bound(real, budget, cores).seconds
    return Trial(seed, outcome.seconds / least, outcome.peak / budget)


def main() -> int:
    """Replay, print the table and return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=30)
    parser.add_argument("--cores", type=int, nargs="+", default=[20, 40])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes for the seeds")
    options = parser.parse_args()
    steps = steps_of(json.loads(RECORD.read_text(encoding="utf-8")))
    budget = int((options.gib - OTHERS_GIB) * GIB)
    rule = max(1, int((options.gib - OTHERS_GIB) // GIB_A_JOB))
    base = replay.fixed(steps, rule)
    print(f"{options.gib:g} GiB, {budget / GIB:g} of them for compiles")
    print(_row(f"MAX_JOBS={rule}", base, base))
    good = True
    for cores in options.cores:
        good &= compared(steps, budget, cores, base)
        if options.seeds:
            good &= tried(steps, budget, cores, options.seeds, options.jobs)
    return 0 if good else 1


def compared(
    steps: Sequence[replay.Step], budget: int, cores: int, base: replay.Outcome
) -> bool:
    """Print what exact predictions give on so many cores; say whether goals are met."""
    least = replay.bound(steps, budget, cores)
    expected = {step.key: Expected(step.life, True) for step in steps}
    print(_row(f"{cores} cores, cores only", replay.fixed(steps, cores), base))
    ours = replay.admitted(steps, expected, budget, cores)
    print(_row(f"{cores} cores, admission", ours, base))
    print(
        f"  bound {least.seconds / 60:.1f} min (longest {least.longest / 60:.1f}, "
        f"memory-time {least.memory / 60:.1f}, work {least.work / 60:.1f}): "
        f"admission / bound = {ours.seconds / least.seconds:.3f}"
    )
    fast = ours.seconds <= BOUND_GOAL * least.seconds
    small = ours.peak <= budget
    return fast and small and ours.seconds <= BASE_GOAL * base.seconds


def tried(
    steps: Sequence[replay.Step], budget: int, cores: int, seeds: int, jobs: int
) -> bool:
    """Print what came of the seeds; say whether all of them met the goals."""
    one = functools.partial(trial, steps, budget, cores)
    with multiprocessing.Pool(jobs) as pool:
        trials = pool.map(one, range(seeds), chunksize=1)
    ratios = sorted(t.ratio for t in trials)
    fills = [t.fill for t in trials]
    slow = [t.seed for t in trials if t.ratio > BOUND_GOAL]
    over = [t.seed for t in trials if t.fill > 1]
    print(
        f"  {seeds} seeds, errors of {ERROR:.0%}: admission / bound median "
        f"{statistics.median(ratios):.3f}, 95 % {ratios[int(0.95 * seeds)]:.3f}, "
        f"worst {ratios[-1]:.3f}, above {BOUND_GOAL}: {len(slow)} {slow[:9]}; peak / "
        f"budget median {statistics.median(fills):.3f}, worst {max(fills):.3f}, above "
        f"1: {len(over)} {over[:9]}"
    )
    return not slow and not over


def _row(name: str, outcome: replay.Outcome, base: replay.Outcome) -> str:
    return (
        f"{name:26} {outcome.seconds / 60:5.1f} min  {outcome.peak / GIB:5.1f} GiB "
        f"at most  {outcome.seconds / base.seconds:.2f} of MAX_JOBS"
    )


if __name__ == "__main__":
    sys.exit(main())
