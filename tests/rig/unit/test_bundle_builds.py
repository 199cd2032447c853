# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a bundle says of builds."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rig.support import fakescene
from tests.rig.support.bundled import record, site
from tools.rig.base.state import StateRoot
from tools.rig.builds import profile
from tools.rig.steps.bundling import builds as of_builds
from tools.rig.steps.bundling import steps as of_steps
from tools.rig.steps.bundling.site import Part


class TestBuilds:
    """Records and logs."""

    def test_newest_and_the_failed_one(self, tmp_path: Path) -> None:
        """An old failure is among them though newer builds went well."""
        for day in range(1, 7):
            result = "failed" if day == 1 else "done"
            record(tmp_path, f"2026010{day}-000000-abcd", result)
        at = site(root=StateRoot(tmp_path))
        names = [part.name for part in of_builds.builds(at)]
        assert [n for n in names if n.endswith(".json")] == [
            f"builds/2026010{day}-000000-abcd.json" for day in (6, 5, 4, 1)
        ]
        assert len(names) == 8
        assert at.facts["build"]["id"] == "20260101-000000-abcd"
        assert at.facts["build_tail"] == "INFO ok\n"

    def test_a_record_names_no_other_file(self, tmp_path: Path) -> None:
        """A record that was edited cannot make the bundle take a foreign file."""
        record(tmp_path, "strange name", "failed", None)
        (tmp_path / "logs" / "link.log").symlink_to("/etc/passwd")
        at = site(root=StateRoot(tmp_path))
        for named in ("/etc/passwd", str(tmp_path / "logs" / "link.log"), "", 7, "/.."):
            assert of_builds.log_of(at, {"log": named}) is None
        assert [p.name for p in of_builds.builds(at)] == ["builds/1.json"]

    def test_nothing_built(self, tmp_path: Path) -> None:
        """Without a state root, or without builds, there is nothing, and no error."""
        for at in (site(), site(root=StateRoot(tmp_path))):
            for collect in (of_builds.builds, of_builds.servers):
                assert collect(at) == []
            assert of_builds.diagnosis(at) == []
        assert "no failed build" in at.problems[0]

    def test_servers_and_others(self, tmp_path: Path) -> None:
        """Logs of servers, and those that no build wrote, are found by their place."""
        record(tmp_path, "20260101-000000-abcd", "done")
        (tmp_path / "logs" / "odd.txt").write_text("odd\n")
        for number in range(5):
            file = tmp_path / "servers" / "a" / f"s{number}.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number}\n")
            os.utime(file, (number, number))
        parts = of_builds.servers(site(root=StateRoot(tmp_path)))
        assert [p.name for p in parts] == [
            *("servers/1.log", "servers/2.log", "servers/3.log", "logs/1.log")
        ]
        assert parts[0].content == ("# s4.log\n", "4\n")

    def test_unreadable_log(self, tmp_path: Path) -> None:
        """A log that cannot be read is a note."""
        at = site()
        assert of_builds._log(at, "x.log", tmp_path) == []
        assert "x.log: cannot be read" in at.problems[0]

    def test_crashes(self, tmp_path: Path) -> None:
        """Reports of unexpected errors come along."""
        folder = tmp_path / "1cat-rig" / "crashes"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("ValueError\n")
        at = site(env={"XDG_STATE_HOME": str(tmp_path)})
        assert [p.name for p in of_builds.crashes(at)] == ["crashes/1.txt"]

    @pytest.mark.parametrize("server", [False, True])
    def test_diagnosis(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: bool
    ) -> None:
        """The failed build's log is judged, else the newest server's."""
        record(tmp_path, "20260101-000000-abcd", "done" if server else "died")
        (tmp_path / "serve").mkdir()
        (tmp_path / "serve" / "s.log").write_text("served\n")
        asked: list[str] = []

        def logs(names: list[str]) -> Any:
            asked.extend(names)
            return [SimpleNamespace(judgement="j", lines=1)]

        monkeypatch.setattr(of_builds.examine, "logs", logs)
        monkeypatch.setattr(
            of_builds.words, "as_json", lambda *a: {"verdict": "unknown"}
        )
        monkeypatch.setattr(of_builds.words, "as_text", lambda *a: ["text"])
        at = site(root=StateRoot(tmp_path))
        parts = of_builds.diagnosis(at)
        assert [p.name for p in parts] == ["diagnosis.json", "diagnosis.txt"]
        name = "serve/s.log" if server else "logs/20260101-000000-abcd.log"
        assert asked == [str(tmp_path / name)]
        assert at.facts["tail"] == ("served\n" if server else "INFO ok\n")


def test_doctor_and_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come as data and as people read them."""
    report = SimpleNamespace(to_json=lambda: {"verdict": {"line": "ready"}})

    def doctor(console: Any, *args: Any, **how: Any) -> Any:
        console.say("looks fine")
        return report

    monkeypatch.setattr(of_steps.doctors, "doctor", doctor)
    at = site(profile=profile.load("sample"))
    assert of_steps.doctor(at) == [
        Part("doctor.json", {"verdict": {"line": "ready"}}),
        Part("doctor.txt", "looks fine\n"),
    ]
    assert of_steps.doctor(site()) == []
    scene = fakescene.scene(tmp_path)
    made = SimpleNamespace(to_json=lambda: {"jobs": 2}, lines=lambda: ["jobs 2"])
    monkeypatch.setattr(of_steps.scenes, "find", lambda *a, **h: scene)
    monkeypatch.setattr(of_steps.plans, "preview", lambda *a, **h: made)
    first, second = of_steps.plan(at)
    assert first == Part("plan.json", {"jobs": 2})
    assert second.content.endswith("jobs 2\n") and "root:" in second.content
