# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Measure what a second build costs: as it is, after an edit, and in another folder.

``python -m benchmarks.rig.rebuild`` builds the sample cold, again with nothing changed,
after a line in one ``.cu`` and after one in a header, and a clone in another folder
with the warm cache; beside it ``uv build --wheel`` by hand, cold and with nothing
changed, in the same run. With ``--checkout`` a target of your own is measured: it is
cloned, so your edits stay out of it, and ``--source`` and ``--header`` name what is
edited. Prints one line for each build: sources compiled, answers of the cache, and
seconds for the wheel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rig.builds import sample
from tools.rig.builds.target import HERE
from tools.rig.builds.tools import uv_command

_OURS = ("CMAKE_ARGS", "PYTORCH_NVCC", "CCACHE_STATSLOG")


def build(checkout: Path, root: Path, more: Mapping[str, str]) -> dict[str, Any]:
    """Build with the suite and return the build's record."""
    words = ["build-sm70", "--wheel", f"--source={checkout}", *profile(more)]
    argv = [sys.executable, "-m", "invoke", "--search-root", str(HERE), *words]
    env = {**os.environ, **more, "ONECAT_LOCAL_ROOT": str(root)}
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    newest = max((root / "records").glob("*.json"), key=lambda p: p.stat().st_mtime)
    data: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return data


def profile(more: Mapping[str, str]) -> list[str]:
    """Return the option that names the sample's profile, where it is the target."""
    return ["--profile=sample"] if "RIG_SAMPLE_DEP_SRC_DIR" in more else []


def seconds(record: Mapping[str, Any]) -> float:
    """Return what the wheel took."""
    steps = {step["title"]: step["seconds"] for step in record["steps"]}
    return float(steps["build the wheel"])


def tell(title: str, record: Mapping[str, Any], cold: float) -> None:
    """Print one build's line."""
    compiles, cache = record["admission"]["compiles"], record.get("compile_cache", {})
    took = seconds(record)
    print(
        f"{title:24} {compiles:4} compiled, {cache.get('hits', 0):4} hits, "
        f"{took:7.1f} s, {took / cold:6.1%} of cold",
        flush=True,
    )


def by_hand(checkout: Path, record: Mapping[str, Any], cache: Path) -> float:
    """Build a wheel without the suite, in the environment of its builds."""
    plan = record["plan"]
    (wheel,) = (c["argv"] for c in plan["commands"] if c["title"] == "wheel")
    python = wheel[wheel.index("--python") + 1]
    env = {
        k: v
        for k, v in {**os.environ, **plan["env"]}.items()
        if k not in _OURS and not k.startswith("RIG_CACHE") and k != "RIG_NEAR"
    }
    if "RIG_SAMPLE_DEP_SRC_DIR" not in env:
        env["FETCHCONTENT_BASE_DIR"] = str(checkout / ".deps")
    env |= {"CCACHE_DIR": str(cache), "CCACHE_NOHASHDIR": "true"}
    words = ["build", "--wheel", "--no-build-isolation", "--python", python]
    begun = time.monotonic()
    subprocess.run(
        [*uv_command(), *words, "--out-dir", str(cache.parent / "hand"), str(checkout)],
        env=env,
        check=True,
        capture_output=True,
    )
    return time.monotonic() - begun


def edit(file: Path, text: str) -> None:
    """Add a line to a file, so that its text is another."""
    with file.open("a", encoding="utf-8") as fh:
        fh.write(f"\n{text}\n")


def clone(source: Path, place: Path) -> Path:
    """Clone a checkout into a folder."""
    subprocess.run(["git", "clone", "-q", str(source), str(place)], check=True)
    return place


def main() -> int:
    """Measure and print."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--checkout", type=Path, help="a target; the sample without it")
    ask.add_argument("--root", type=Path, help="an empty state root, which stays")
    ask.add_argument("--source", default="csrc/narrow.cu")
    ask.add_argument("--header", default="csrc/check.cuh")
    ask.add_argument("--no-hand", action="store_true", help="leave out what uv takes")
    given = ask.parse_args()
    with tempfile.TemporaryDirectory(prefix="rig-rebuild-") as name:
        folder = Path(name)
        root = given.root or folder / "root"
        more: dict[str, str] = {}
        origin = given.checkout
        if origin is None:
            more["RIG_SAMPLE_DEP_SRC_DIR"] = str(sample.TEMPLATES / "dependency")
            origin = sample.lay_out(folder / "sample", os.environ).path
        os.environ.update(more)
        place = clone(origin, folder / "one" / origin.name)
        first = build(place, root, more)
        cold = seconds(first)
        tell("cold", first, cold)
        tell("nothing changed", build(place, root, more), cold)
        edit(place / given.source, "static inline int rig_one(int x) { return x; }")
        tell("one .cu", build(place, root, more), cold)
        edit(place / given.header, "static inline int rig_two(int x) { return x; }")
        tell("one header", build(place, root, more), cold)
        other = clone(origin, folder / "in another" / "folder" / origin.name)
        tell("a clone elsewhere", build(other, root, more), cold)
        if not given.no_hand:
            hand = clone(origin, folder / "hand" / origin.name)
            took = [by_hand(hand, first, folder / "ccache") for _ in range(2)]
            again = f"nothing changed {took[1]:.1f} s"
            print(f"by hand: cold {took[0]:.1f} s, {again}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
