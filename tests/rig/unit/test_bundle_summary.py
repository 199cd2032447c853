# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What stands at the top of a bundle."""

from __future__ import annotations

from typing import Any

from tests.rig.support import fakenvml
from tools.rig.host import gpu
from tools.rig.steps.bundling import summary as of_summary


class TestSummary:
    """The Markdown."""

    @staticmethod
    def make(facts: dict[str, Any], problems: tuple[str, ...] = ()) -> str:
        """Return the summary of facts."""
        return of_summary.summary(facts, problems, str, lambda: {"secret": 2})

    def test_all_of_it(self) -> None:
        """What was tried, the cause, the machine, the versions, the log's end."""
        text = self.make(
            {
                "build": {
                    "command": "invoke build-sm70 | tee x",
                    "result": "failed",
                    "steps": [{"title": "wheel"}],
                },
                "diagnosis": {
                    "of": "build 1",
                    "verdict": "failure",
                    "findings": [
                        {
                            "id": "nvcc-old",
                            "role": "cause",
                            "title": "nvcc is `old`",
                            "line": 7,
                            "evidence": "error: x",
                            "cause": "because",
                        }
                    ],
                },
                "machine": {"system": "Debian", "wsl": True, "cores": 2},
                "gpus": gpu.read(fakenvml.FakeNvml([fakenvml.card()])),
                "git describe": "v1-dirty",
                "versions": {"torch": "2.10.0"},
                "doctor": {
                    "results": [
                        {"status": "fail", "title": "Driver", "detail": "too old"},
                        {"status": "ok", "title": "Disk", "detail": "fast"},
                    ]
                },
                "tail": "one\n```\ntwo\n",
            },
            ("git: no answer",),
        )
        for piece in (
            "| command | `invoke build-sm70 \\| tee x` |",
            "| last step | `wheel` |",
            "| root cause | `` nvcc-old: nvcc is `old` `` |",
            "| evidence | `line 7: error: x` |",
            "| container | `WSL` |",
            "Tesla V100-SXM2-16GB (sm_70, 16 GiB)",
            "| torch | `2.10.0` |",
            "fail: Driver: too old",
            "````text\none\n```\ntwo\n````",
            "git: no answer",
            "Replaced in the bundle: 2 secret.",
        ):
            assert piece in text, piece
        assert "fast" not in text

    def test_nothing_known(self) -> None:
        """Without any fact there still is a summary."""
        text = self.make({})
        assert "No build is recorded" in text and "There was no log" in text

    def test_stays_under_the_limit(self) -> None:
        """However long everything is, it can be pasted; the log's end is kept."""
        long = "".join(f"line {n} {'x' * 3000}\n" for n in range(500))
        facts = {name: long for name in ("tail", "diagnosis_text", "plan")}
        text = self.make({**facts, "versions": {f"p{n}": long for n in range(80)}})
        assert len(text) < 65_000
        short = self.make(facts, tuple(long.splitlines()))
        assert len(short) < 65_000 and "line 499" in short
        assert "lines above are left out" in short
