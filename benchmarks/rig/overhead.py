# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the suite costs beside the bare commands, as ratios in one run.

Two numbers: a build of the sample through ``invoke build-sm70`` against the very same
commands of its plan typed by hand, and ``invoke --list`` against an empty ``tasks.py``.
Run with the Python of the task tools: ``python benchmarks/rig/overhead.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
LIMIT_RATIO, LIMIT_S, LIMIT_LIST = 1.05, 3.0, 2.0
_EMPTY = "from invoke import task\n\n\n@task\ndef nothing(c):\n    pass\n"


def invoke(*words: str, env: dict[str, str], root: Path = HERE) -> tuple[float, str]:
    """Run an Invoke task; return seconds and standard output."""
    argv = [sys.executable, "-m", "invoke", "--search-root", str(root), *words]
    begun = time.monotonic()
    done = subprocess.run(argv, env=env, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return time.monotonic() - begun, done.stdout


def clean(checkout: Path) -> None:
    """Take away what a build left in the checkout, so that all is compiled again."""
    subprocess.run(["git", "-C", checkout, "clean", "-xfdq"], check=True)


def bare(plan: dict[str, object], checkout: Path, env: dict[str, str]) -> float:
    """Run the plan's commands by hand: requirements, wheel, and the wheel's install."""
    commands = plan["commands"]
    assert isinstance(commands, list)
    wheels = Path(tempfile.mkdtemp(prefix="rig-bench-"))
    (wheels / "constraints.txt").touch()
    begun = time.monotonic()
    for command in commands:
        words = [w.replace(_folder(commands), str(wheels)) for w in command["argv"]]
        if "{requirements}" in words:
            continue
        built = next(iter(wheels.glob("*.whl")), None)
        words = [w.replace("{wheel}", str(built)) for w in words]
        subprocess.run(words, env=env, check=True, capture_output=True, cwd=wheels)
    took = time.monotonic() - begun
    shutil.rmtree(wheels)
    return took


def _folder(commands: Sequence[dict[str, list[str]]]) -> str:
    words = next(c["argv"] for c in commands if "--out-dir" in c["argv"])
    return words[words.index("--out-dir") + 1]


def best_list(env: dict[str, str], root: Path, rounds: int = 7) -> float:
    """Return the shortest of some runs of ``invoke --list``."""
    return min(invoke("--list", env=env, root=root)[0] for _ in range(rounds))


def main() -> int:
    """Measure and print; 1 when a limit is missed."""
    env = {**os.environ, "CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}
    invoke("build-sm70", "--wheel", env=env)
    _, text = invoke("plan", "--wheel", "--json", env=env)
    plan = json.loads(text)
    checkout = Path(plan["checkout"])
    ours, theirs = [], []
    for _ in range(3):
        clean(checkout)
        theirs.append(bare(plan, checkout, {**env, **plan["env"]}))
        clean(checkout)
        ours.append(invoke("build-sm70", "--wheel", env=env)[0])
    a, b = min(ours), min(theirs)
    print(f"build: suite {a:.1f} s, bare commands {b:.1f} s, ratio {a / b:.2f}")
    print(f"       allowed: {LIMIT_RATIO} x bare + {LIMIT_S:.0f} s")
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name)
        (empty / "tasks.py").write_text(_EMPTY)
        listed = best_list(env, HERE) / best_list(env, empty)
    print(f"list:  {listed:.2f} x an empty tasks.py, allowed {LIMIT_LIST}")
    missed = a > LIMIT_RATIO * b + LIMIT_S or listed > LIMIT_LIST
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
