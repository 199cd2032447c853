# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What diagnosing 100 MB of log costs, beside ``grep -c`` of the same file, in one run.

    python benchmarks/rig/diagnose_speed.py [--megabytes 100] [--rounds 3]

The log is made of lines of the catalogue's own logs and of what healthy servers and
builds say, so every entry has something to look at. Processor time of whole processes
is compared, their start included; the limits are those of an idle machine.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.rig.base.console import table
from tools.rig.base.run import run

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEGABYTES = 3.0, 150.0
SHARE = 0.02
"""Share of lines that come from logs of failures."""


def write(file: Path, size: int) -> None:
    """Write a log of at least so many bytes."""
    chance = random.Random(1)
    bad = [
        line
        for log in sorted((ROOT / "tests/rig/cases").glob("*/*.txt"))
        for line in log.read_text("utf-8").splitlines()
    ]
    written = number = 0
    with file.open("w", encoding="utf-8") as sink:
        while written < size:
            number += 1
            kind = chance.random()
            if kind < SHARE:
                line = chance.choice(bad)
            elif kind < 0.5:
                line = (
                    f"(APIServer pid=42) INFO 11-30 12:00:{number % 60:02} [log.py:9] "
                    f"Engine 000: Avg prompt throughput: {chance.random():.1f} "
                    f"tokens/s, Running: {number % 9} reqs, "
                    f"GPU KV cache usage: {number % 99}.3%"
                )
            elif kind < 0.8:
                line = f'INFO:     127.0.0.1:{number % 60_000} - "POST /v1/x" 200 OK'
            else:
                line = (
                    f"[{number % 999}/999] Building CUDA object "
                    f"CMakeFiles/_C.dir/csrc/part_{number}.cu.o"
                )
            written += sink.write(line + "\n")


def cost(argv: list[str]) -> tuple[float, float]:
    """Return the processor seconds of a command, and the most memory of any, in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(argv, env=os.environ, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, after.ru_maxrss / 1024


def main() -> int:
    """Measure, print the ratio and return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows, ours = [], []
    memory = 0.0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        write(log, options.megabytes * 10**6)
        for number in range(options.rounds):
            grep, _ = cost(["grep", "-c", "error", str(log)])
            mine, memory = cost(
                [sys.executable, "-m", "tools.rig.diagnose", "--json", str(log)]
            )
            ours.append(mine)
            rows.append(
                (str(number + 1), f"{mine:.2f}", f"{grep:.2f}", f"{mine / grep:.1f}")
            )
    head = ("ROUND", "DIAGNOSE s", "GREP s", "RATIO")
    print("\n".join(table(head, rows)))
    print(f"{options.megabytes} MB of log; most memory {memory:.0f} MB")
    missed = statistics.median(ours) > SECONDS or memory > MEGABYTES
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
