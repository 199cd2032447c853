# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How much longer ``doctor`` takes than its slowest single probe, in one run.

    python benchmarks/rig/doctor_overhead.py [--profile v100-cu128] [--rounds 3]

A probe is one question to the machine: every toolkit, every compiler, one program's
version, the rates of the disks. They run beside each other, so the whole may take at
most three times the slowest one. Each round is a process of its own and counts
everything, the start of Python and its imports too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.rig.base.console import table
from tools.rig.base.run import run

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3.0

_ONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tools.rig.base import config
from tools.rig.base.console import Console
from tools.rig.builds import profile
from tools.rig.steps.doctor import doctor
out = open("/dev/null", "w")
loaded = profile.load(sys.argv[2])
checkout = Path(sys.argv[3])
report = doctor(Console(out), config.resolve(), loaded, checkout=checkout)
print(json.dumps({"seconds": report.seconds, "probes": dict(report.probes)}))
"""


def main() -> int:
    """Measure, print the ratio and return 1 when it misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="v100-cu128")
    parser.add_argument("--checkout", default=str(ROOT))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    ratios = []
    for number in range(options.rounds):
        argv = [sys.executable, "-I", "-c", _ONE, ROOT, options.profile]
        start = time.monotonic()
        answer = run([*argv, options.checkout], env=os.environ, check=True)
        wall = time.monotonic() - start
        found = json.loads(answer.out.splitlines()[-1])
        name, slowest = max(found["probes"].items(), key=lambda item: item[1])
        together = sum(found["probes"].values())
        ratios.append(wall / slowest)
        rows.append(
            [
                str(number + 1),
                f"{wall:.2f}",
                f"{found['seconds']:.2f}",
                f"{slowest:.2f} ({name})",
                f"{together:.2f}",
                f"{ratios[-1]:.2f}",
            ]
        )
    head = (
        "round",
        "process s",
        "checks s",
        "slowest probe s",
        "all probes s",
        "ratio",
    )
    for line in table(head, rows):
        print(line)
    ratio = statistics.median(ratios)
    verdict = "within" if ratio <= LIMIT else "MISSES"
    print(f"doctor / slowest probe: {ratio:.2f} ({verdict} the limit of {LIMIT:.0f})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
