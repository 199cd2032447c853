# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``doctor``: what goes to the checks, and what comes of their results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.support.command_desk import Answer, Desk, never
from tests.rig.support.command_desk import desk as desk
from tools.rig.base.errors import UsageError
from tools.rig.builds.profile import load, on_sample
from tools.rig.builds.target import HERE, Target
from tools.rig.steps import commands, doctor


class TestDoctor:
    """``doctor``."""

    def test_list(self, desk: Desk) -> None:
        """The checks are listed, for people and as data."""
        got = commands.doctor(desk.console, [], True, "").to_json()
        assert {"id", "topic", "title"} == set(got[0])
        assert desk.out.getvalue().startswith("CHECK")

    def test_run(self, desk: Desk) -> None:
        """The target's profile and checkout go to the checks."""
        target = Target(Path("/fork"), load("v100-cu128"))
        desk.put(commands.target, "find", target)
        desk.put(doctor, "doctor")
        got = commands.doctor(desk.console, ["git"], False, "", source="/fork")
        words = dict(got.words)
        want = {"only": ["git"], "checkout": Path("/fork"), "absent": False}
        assert words == want
        assert got.args[2] is target.profile

    @pytest.mark.parametrize(
        ("named", "needs_torch", "said"),
        [("", False, ""), ("sample", False, ""), ("v100-cu128", True, "no checkout")],
    )
    def test_without_checkout(
        self, desk: Desk, named: str, needs_torch: bool, said: str
    ) -> None:
        """A real profile that is named is judged as it is, not as the sample."""
        real = load(named or "sample")
        sample = real if real.torch is None else on_sample(real)
        desk.put(commands.target, "find", Target(None, sample))
        desk.put(doctor, "doctor")
        got = commands.doctor(desk.console, [], False, "", profile=named)
        assert (got.args[2].torch is not None) == needs_torch
        words = dict(got.words)
        assert words == {"only": [], "checkout": HERE, "absent": True}
        assert desk.out.getvalue().startswith(said)
        assert bool(desk.out.getvalue()) == bool(said)

    def test_compare(self, desk: Desk, tmp_path: Path) -> None:
        """What differs from another host's report is the result."""
        file = tmp_path / "other.json"
        file.write_text("{}")
        desk.put(commands.target, "find", Target(None, load("sample")))
        desk.put(doctor, "read_report", {})
        desk.put(doctor, "doctor")
        desk.put(doctor, "compare_with", [Answer((), ())])
        got = commands.doctor(desk.console, [], False, str(file))
        assert got.to_json() == [{"args": (), "words": ()}]

    def test_no_such_report(self, desk: Desk) -> None:
        """A file that is no report is told before the checks run."""
        desk.put(doctor, "doctor", never)
        with pytest.raises(UsageError):
            commands.doctor(desk.console, [], False, "/nonexistent.json")
