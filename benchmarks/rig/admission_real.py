# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Compiles real CUDA sources in a memory cgroup: cores only, fixed jobs, admission.

``python benchmarks/rig/admission_real.py --nvcc PATH [--arch 70]``: as root, since it
makes a memory cgroup (version 1 or 2). Large sources do not fit side by side there;
what is smaller fits beside one of them. Cores only starts two large ones at once and
is ended by the kernel. Fixed jobs starts as many as fit if all were the largest: one.
The admission knows the lives that the run with fixed jobs measured. It runs a second
time with what it learned in the first. Beside each run stands the time that the
simulator gives for it, from what was known before it. Each run begins when the kernel
reports no more memory pressure: cores only leaves so much of it that the admission
would hold back for half a minute, as it should, and as the simulator cannot know.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.rig import replay
from tests.rig.support.memory_group import MemoryGroup, memory_group
from tools.rig.builds.admission import launcher
from tools.rig.builds.admission.budget import psi_some_avg10
from tools.rig.builds.admission.predictions import Expected, Predictions

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
CORES = 2
SIZES = {"large": 24000, "middle": 11000, "small": 2500}
COUNTS = {"large": 2, "middle": 4, "small": 4}
LIMIT = 1150 * MIB
FORECAST_GOAL = 0.15
CALM = 0.5
"""Percent of ten seconds that some task waits for memory; the admission goes by 1."""
KEPT = 130 * MIB
"""What ninja, the service, the launchers and this script's own runner hold."""

_HEAD = """\
template <int A> struct P {
  float v[A % 7 + 1];
  template <int B> struct Q { int w[B + 1]; static constexpr int t = A + B; };
  __device__ float sum() const { float x = 0; for (float y : v) x += y; return x; }
};
"""
_TAIL = """
__global__ void kernel(float* out) {
  P<3> p; p.v[0] = out[0]; p.v[1] = out[1]; p.v[2] = p.v[3] = 0; out[2] = p.sum();
}
"""


def source(count: int) -> str:
    """Return a CUDA source with so many pairs of templates to instantiate."""
    lines = (
        f"static_assert(sizeof(P<{n}>) && P<{n}>::Q<{n % 5}>::t == {n + n % 5});"
        for n in range(count)
    )
    return _HEAD + "\n".join(lines) + _TAIL


def write(folder: Path, nvcc: str, arch: str) -> list[str]:
    """Write the sources and two ninja files; return the objects, large ones first."""
    names = []
    for size, count in COUNTS.items():
        for number in range(count):
            name = f"{size}{number}.cu"
            (folder / name).write_text(source(SIZES[size]))
            names.append(name)
    compile_ = f"{nvcc} -std=c++17 -arch=sm_{arch} -Wno-deprecated-gpu-targets"
    for file, before in (("plain.ninja", ""), ("admit.ninja", f"{folder}/rig-admit ")):
        rule = f"rule cu\n  command = {before}{compile_} -c $in -o $out\n"
        steps = "".join(f"build {name}.o: cu {name}\n" for name in names)
        (folder / file).write_text(rule + steps)
    return [f"{name}.o" for name in names]


_RUN = """\
import json, os, subprocess, sys, time
from pathlib import Path
from tools.rig.builds.admission.client import Admission, Files
ninja, file, jobs, cap, cores, budget, build = sys.argv[1:]
here = Path.cwd()
files = Files.of(here / "logs", build, here / "predictions.json")
cap = int(cap) or None
with Admission(
    build, files, int(cores), cap, budget=int(budget), folder=here / "s"
) as one:
    while file != "plain.ninja" and not one.latest:
        time.sleep(0.05)
    begun = time.monotonic()
    got = subprocess.run(
        [ninja, "-f", file, "-j", jobs], env={**os.environ, **one.env},
        capture_output=True, text=True,
    )
    seconds = time.monotonic() - begun
said = [line for line in got.stdout.splitlines() if "ill" in line]
result = dict(seconds=seconds, code=got.returncode, events=one.events(), said=said)
print(json.dumps(result))
"""


def measure(
    folder: Path, group: MemoryGroup, build: str, file: str, jobs: int, cap: int = 0
) -> dict[str, Any]:
    """Build everything once inside the group."""
    while (psi_some_avg10() or 0.0) > CALM:
        time.sleep(1)
    for made in folder.glob("*.o"):
        made.unlink()
    (folder / ".ninja_log").unlink(missing_ok=True)
    ninja = shutil.which("ninja") or os.fspath(Path(sys.executable).with_name("ninja"))
    numbers = [str(n) for n in (jobs, cap, CORES, LIMIT - KEPT)]
    before = group.kills()
    words = [sys.executable, "-c", textwrap.dedent(_RUN), ninja, file, *numbers, build]
    got = subprocess.run(
        group.inside(*words),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(got.stdout)
    found["kills"] = group.kills() - before
    memory = folder / "logs" / f"{build}.memory.jsonl"
    with contextlib.suppress(OSError):
        lines = [json.loads(line) for line in memory.read_text().splitlines()]
        found["used"] = max((line["used"] for line in lines), default=0)
    return found


def simulated(objects: Sequence[str], lives: Path) -> float:
    """Return the simulator's time for the admission, from lives measured before."""
    known = Predictions.load(lives)
    steps = [replay.Step(name, known.curves[name]) for name in objects]
    expected = {name: Expected(known.curves[name], True) for name in objects}
    got = replay.admitted(
        steps, expected, LIMIT - KEPT, CORES, jobs=len(objects), look_s=0.5
    )
    return got.seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--arch", default="70", help="a number like 70")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rig-a-") as name,
        memory_group(LIMIT) as group,
    ):
        folder = Path(name)
        if group is None or not given.nvcc:
            print("this needs root, a memory cgroup and nvcc", file=sys.stderr)
            return 3
        (folder / "s").mkdir()
        launcher.publish(folder, folder / "s")
        objects = write(folder, given.nvcc, given.arch)
        every = len(objects)
        fixed = measure(folder, group, "fixed", "admit.ninja", every, cap=1)
        cores = measure(folder, group, "cores", "plain.ninja", CORES)
        lives = folder / "predictions.json"
        foretold = [simulated(objects, lives)]
        ours = measure(folder, group, "ours", "admit.ninja", every)
        foretold.append(simulated(objects, lives))
        again = measure(folder, group, "again", "admit.ninja", every)
        for size in SIZES:
            some = [e for e in fixed["events"] if e["object"].startswith(size)]
            mean = sum(e["seconds"] for e in some) / len(some)
            peak = max(e["peak_bytes"] for e in some) / MIB
            print(f"{len(some)} {size} sources: {mean:.1f} s, {peak:.0f} MiB")
    print(f"cgroup {LIMIT // MIB} MiB, {CORES} cores, compiles {every}")
    for title, one in (
        ("cores only (2 jobs)", cores),
        ("fixed jobs (1)", fixed),
        ("admission", ours),
        ("admission again", again),
    ):
        end = f"exit {one['code']}, {one['kills']} killed for want of memory"
        print(f"{title:20} {one['seconds']:7.1f} s  {end}")
    print(f"most used under admission: {ours['used'] / MIB:.0f} MiB of compiles")
    print(f"admission to fixed jobs: {ours['seconds'] / fixed['seconds']:.2f}")
    slower = sum(e["seconds"] for e in ours["events"])
    slower /= sum(e["seconds"] for e in fixed["events"])
    print(f"side by side a compile takes {slower:.2f} of its time alone")
    errors = [s / r["seconds"] - 1 for s, r in zip(foretold, (ours, again))]
    for seconds, error in zip(foretold, errors):
        print(f"simulated: {seconds:.1f} s, {error:+.0%} of the real run")
    begun = min(e["started"] for e in ours["events"])
    for e in sorted(ours["events"], key=lambda e: float(e["started"])):
        name, at, size = e["object"], e["started"] - begun, e["peak_bytes"] / MIB
        print(f"  {name:12} {at:5.1f} to {at + e['seconds']:5.1f} s  {size:4.0f} MiB")
    good = all(run["code"] == 0 and not run["kills"] for run in (ours, again))
    good = good and cores["code"] != 0 and max(map(abs, errors)) <= FORECAST_GOAL
    return 0 if good and ours["seconds"] < fixed["seconds"] else 1


if __name__ == "__main__":
    sys.exit(main())
