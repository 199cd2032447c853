# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is typed by hand beside a build is what its plan says, in a place of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.rig import overhead

ROOT = Path(__file__).resolve().parents[3]
NEW = "/state/generations/p/{build}"
PLAN: dict[str, Any] = {
    "generation": NEW,
    "env": {"MAX_JOBS": "9", "PYTORCH_NVCC": "/rig-admit", "RIG_CACHE": "/ccache"},
    "commands": [
        {"argv": ["/uv", "pip", "install", "--python", "/bench/bin/python", "-r", "x"]},
        {
            "argv": ["/uv", "build", "--wheel", "--python", "/bench/bin/python"]
            + ["--out-dir", "/state/artifacts/{build}", "/c"]
        },
        {"argv": ["/uv", "--python", f"{NEW}/bin/python", "-r", "{requirements}"]},
        {"argv": ["/uv", "--python", f"{NEW}/bin/python", "--no-deps", "{wheel}"]},
    ],
}


def test_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each open place is filled, and nothing goes into the suite's own folders."""
    typed: list[list[str]] = []

    def run(words: list[str], *, cwd: str, **how: Any) -> None:
        typed.append(words)
        if "build" in words:
            Path(words[words.index("--out-dir") + 1], "a-1-py3-none-any.whl").touch()

    monkeypatch.setattr(overhead.subprocess, "run", run)
    assert overhead.bare(PLAN, {}) >= 0
    needs, build, venv, install = typed
    assert needs == PLAN["commands"][0]["argv"] and build[-1] == "/c"
    assert venv[:4] == ["/uv", "venv", "--python", "/bench/bin/python"]
    assert install[2] == f"{venv[4]}/bin/python"
    assert install[-1].endswith("/a-1-py3-none-any.whl")
    assert not [word for words in typed for word in words if "{" in word]


def test_variables() -> None:
    """By hand, no compile asks our admission for room."""
    env = overhead.by_hand({"HOME": "/h", "MAX_JOBS": "1"}, PLAN)
    assert env == {"HOME": "/h", "MAX_JOBS": "9"}
