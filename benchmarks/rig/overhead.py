# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the suite costs beside the bare commands, as ratios in one run.

Two numbers: a build of the sample through ``invoke build-sm70 --wheel``, from nothing
compiled to a new environment, against the same commands of its plan typed by hand; and
``invoke --list`` against an empty ``tasks.py``. Run with the Python of the task tools:
``python benchmarks/rig/overhead.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.rig.builds import sample
from tools.rig.builds.target import HERE

LIMIT_RATIO, LIMIT_S, LIMIT_LIST = 1.05, 3.0, 2.0
_EMPTY = "from invoke import task\n\n\n@task\ndef nothing(c):\n    pass\n"
_OURS = ("PYTORCH_NVCC", "CMAKE_ARGS", "CCACHE_STATSLOG", "DIST_EXTRA_CONFIG")


def invoke(*words: str, env: Mapping[str, str], root: Path = HERE) -> tuple[float, str]:
    """Run an Invoke task; return seconds and standard output."""
    argv = [sys.executable, "-m", "invoke", "--search-root", str(root), *words]
    begun = time.monotonic()
    done = subprocess.run(argv, env=env, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return time.monotonic() - begun, done.stdout


def anew(checkout: Path, plan: Mapping[str, Any]) -> None:
    """Take away all that was compiled, and let the wheel be another one than before."""
    subprocess.run(["git", "-C", checkout, "clean", "-xfdq"], check=True)
    shutil.rmtree(plan["build_folder"], ignore_errors=True)
    with (checkout / "rig_sample" / "__init__.py").open("a") as code:
        code.write(f"\n# {time.monotonic_ns()}\n")


def bare(plan: Mapping[str, Any], env: Mapping[str, str]) -> float:
    """Run the plan's commands by hand: requirements, wheel, and its environment."""
    commands = plan["commands"]
    with tempfile.TemporaryDirectory(prefix="rig-bench-") as name:
        wheels = Path(name)
        (wheels / "constraints.txt").touch()
        wheel = next(c["argv"] for c in commands if "--out-dir" in c["argv"])
        uv, bench = wheel[0], wheel[wheel.index("--python") + 1]
        put = {
            wheel[wheel.index("--out-dir") + 1]: name,
            plan["generation"]: str(wheels / "venv"),
        }
        begun = time.monotonic()
        for command in commands:
            if "{requirements}" in command["argv"]:
                # the sample has none; its environment is due now
                words = [uv, "venv", "--python", bench, str(wheels / "venv")]
            else:
                put["{wheel}"] = str(next(iter(wheels.glob("*.whl")), None))
                words = filled(command["argv"], put)
            subprocess.run(words, env=env, check=True, capture_output=True, cwd=name)
        return time.monotonic() - begun


def filled(words: Iterable[str], put: Mapping[str, str]) -> list[str]:
    """Return a command with other places in it."""
    done = []
    for word in words:
        for old, new in put.items():
            word = word.replace(old, new)
        done.append(word)
    return done


def by_hand(env: Mapping[str, str], plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the plan's variables without those that start our own programs."""
    return {
        name: value
        for name, value in {**env, **plan["env"]}.items()
        if name not in _OURS
        and not name.startswith(("RIG_CACHE", "RIG_ADMISSION", "RIG_NEAR"))
    }


def best_list(env: Mapping[str, str], root: Path, rounds: int = 7) -> float:
    """Return the shortest of some runs of ``invoke --list``."""
    return min(invoke("--list", env=env, root=root)[0] for _ in range(rounds))


def main() -> int:
    """Measure and print; 1 when a limit is missed."""
    with tempfile.TemporaryDirectory(prefix="rig-overhead-") as name:
        env = {
            **os.environ,
            "CCACHE_DISABLE": "1",
            "SCCACHE_RECACHE": "1",
            "ONECAT_LOCAL_ROOT": f"{name}/root",
            "RIG_SAMPLE_DEP_SRC_DIR": str(sample.TEMPLATES / "dependency"),
        }
        origin = sample.lay_out(Path(name, "sample"), env).path
        checkout = Path(name, origin.name)
        subprocess.run(["git", "clone", "-q", origin, checkout], check=True)
        of_it = (f"--source={checkout}", "--profile=sample")
        build = ("build-sm70", "--wheel", *of_it)
        invoke(*build, env=env)
        plan = json.loads(invoke("plan", "--wheel", "--json", *of_it, env=env)[1])
        ours, theirs = [], []
        for _ in range(3):
            anew(checkout, plan)
            theirs.append(bare(plan, by_hand(env, plan)))
            anew(checkout, plan)
            ours.append(invoke(*build, env=env)[0])
    a, b = min(ours), min(theirs)
    print(f"build: suite {a:.1f} s, bare commands {b:.1f} s, ratio {a / b:.2f}")
    print(f"       allowed: {LIMIT_RATIO} x bare + {LIMIT_S:.0f} s")
    with tempfile.TemporaryDirectory() as other:
        empty = Path(other)
        (empty / "tasks.py").write_text(_EMPTY)
        listed = best_list(env, HERE) / best_list(env, empty)
    print(f"list:  {listed:.2f} x an empty tasks.py, allowed {LIMIT_LIST}")
    missed = a > LIMIT_RATIO * b + LIMIT_S or listed > LIMIT_LIST
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
