# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Replays the recorded build of the fork with and without admission.

    python benchmarks/rig/admission.py [--gib 30] [--cores 20 40] [--seeds 1000]

Prints, for each number of cores: fixed jobs by the article's rule, cores only, this
admission with exact predictions, and the worst and the median of it over as many seeds,
where the real time and the real memory of every compile are off by up to a fifth either
way, each by itself. Beside them the lower bound: the longest object, the memory-time
over the budget, the work over the cores. The figures say nothing of a machine that
swaps, nor of one whose cores slow each other down.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import replay

from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Expected

RECORD = ROOT / "docs" / "rig" / "records" / "fork-replay.json"
GIB = 1 << 30
MIB = 1 << 20
GIB_A_JOB = 4
OTHERS_GIB = 4
"""What the article leaves to everything else: 30 GiB are 26 for compiles."""
UNSAMPLED = ((240.0, 3.9 * GIB), (0.0, 2.2 * GIB))
"""Peak of a step whose memory was not sampled, by the seconds it takes at least."""
ERROR = 0.2


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
    steps, objects = [], set()
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


if __name__ == "__main__":
    rec=json.loads(RECORD.read_text()); S=steps_of(rec)
    budget=26*GIB
    E={s.key:Expected(s.life,True) for s in S}
    for n in (6,20,40):
        o=replay.fixed(S,n); print(n,o.seconds/60,o.peak/GIB)
    for cores in (20,40):
        print(replay.bound(S,budget,cores))
        t=time.time(); o=replay.admitted(S,E,budget,cores); print('adm',o.seconds/60,o.peak/GIB,time.time()-t)
        bo=replay.bound(S,budget,cores).seconds
        print(o.seconds/bo)
        R=[]
        for seed in range(int(sys.argv[1])):
            r=off(S,seed); t=time.time(); o=replay.admitted(r,E,budget,cores); b=replay.bound(r,budget,cores)
            R.append((o.seconds/b.seconds,o.peak/budget))
        print(time.time()-t, max(x for x,_ in R),statistics.median(x for x,_ in R),max(y for _,y in R),sum(x>1.1 for x,_ in R),sum(y>1 for _,y in R))
