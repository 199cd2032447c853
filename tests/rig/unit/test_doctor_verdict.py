# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What all results come to, and how two hosts are compared."""

import io
import json

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.steps import doctor as step
from tools.rig.steps.checks.runner import Result
from tools.rig.steps.checks.verdict import compare, judge, read_report


def result(id, status="ok", detail="d", **more):
    """Return one result."""
    return Result(id, f"title of {id}", "topic", status, detail, **more)


def run_doctor(checks=None, **options):
    """Run the doctor on a healthy machine; return the report and what was printed."""
    out = io.StringIO()
    report = step.doctor(
        Console(out, {}),
        options.pop("settings", fake.settings()),
        options.pop("profile", fake.profile()),
        checks=checks,
        checkout=fake.SOURCE,
        env=options.pop("env", {"PATH": "/usr/bin", "HOME": "/home/me"}),
        probes=options.pop("probes", fake.probes()),
        **options,
    )
    return report, out.getvalue()


class TestVerdict:
    """One line out of many results."""

    def test_ready(self):
        """Nothing wrong and nothing to work round is ready."""
        verdict = judge([result("a"), result("b", "skip"), result("c", "warn")], "p")
        assert (verdict.kind, verdict.line) == (
            "ready",
            "ready: this machine can build p",
        )

    def test_work_rounds_are_named_once(self):
        """Each work-round stands in the line, the same one only once."""
        results = [
            result("a", "warn", workaround="one"),
            result("b", "warn", workaround="two"),
            result("c", "warn", workaround="one"),
        ]
        verdict = judge(results, "p")
        assert verdict.kind == "ready with work-rounds"
        assert verdict.line == "ready with work-rounds: one; two"
        assert verdict.workarounds == ("one", "two")

    def test_a_work_round_that_cannot_be_had(self):
        """What a build falls back to stands in the line instead."""
        results = [
            result("a", "warn", workaround="one"),
            result("b", "warn", measured={"instead": {"one": "two"}}),
        ]
        assert judge(results, "p").line == "ready with work-rounds: two"

    def test_cannot_says_why_and_what_changes_it(self):
        """The first failure is told in full with its hint, the others are named."""
        results = [
            result("a", "warn", workaround="one"),
            result("b", "fail", "it is broken", hint="mend it"),
            result("c", "fail"),
        ]
        verdict = judge(results, "p")
        assert verdict.kind == "cannot"
        assert verdict.line == "cannot build p: title of b: it is broken; also: c"
        assert verdict.hint == "mend it"

    def test_single_failure(self):
        """One failure has no others to name."""
        assert judge([result("b", "fail", "x")], "p").line.endswith("title of b: x")

    @pytest.mark.parametrize(
        ("results", "kind"),
        [
            ([result("a", "unknown")], "ready"),
            (
                [result("a", "unknown"), result("b", "warn", workaround="w")],
                "ready with work-rounds",
            ),
        ],
    )
    def test_unknown_is_named_and_does_not_block(self, results, kind):
        """What could not be found out stands in the line."""
        verdict = judge(results, "p")
        assert verdict.kind == kind
        assert verdict.line.endswith("(unknown: a)")


class TestCompare:
    """What differs between two hosts."""

    def _report(self, *results, profile="p", host="node-a"):
        return {
            "profile": profile,
            "host": host,
            "results": [
                {"id": id, "status": status, "data": data, "measured": {"free": 1}}
                for id, status, data in results
            ],
        }

    def test_same_is_no_difference(self):
        """Measured numbers, durations and the host's name are not compared."""
        one = self._report(("a", "ok", {"x": 1}))
        other = self._report(("a", "ok", {"x": 1}), host="node-b")
        other["results"][0]["measured"] = {"free": 99}
        assert compare(one, other) == []

    def test_status_and_facts_are_compared(self):
        """Each differing fact is one line."""
        one = self._report(("a", "ok", {"x": 1, "y": []}), ("b", "ok", {}))
        other = self._report(
            ("a", "warn", {"x": 2, "y": ["s"]}), ("c", "ok", {"z": ""})
        )
        lines = [str(d) for d in compare(one, other)]
        assert lines == [
            "a: ok here, warn there",
            "a.x: 1 here, 2 there",
            "a.y: nothing here, ['s'] there",
            "b: ok here, nothing there",
            "c: nothing here, ok there",
            "c.z: nothing here, nothing there",
        ]

    def test_other_profile_is_said(self):
        """Two reports for different profiles cannot agree in all."""
        found = compare(self._report(), self._report(profile="q"))
        assert [str(d) for d in found] == ["profile.name: p here, q there"]

    def test_two_machines(self, tmp_path):
        """The image that works on one node and not on the next: the driver differs."""
        here, _ = run_doctor()
        old = fake.Gpus("present", "", "470.82.01", "11.4", (fake.V100,))
        there, _ = run_doctor(probes=fake.probes(gpus=lambda: old))
        file = tmp_path / "there.json"
        file.write_text(json.dumps(there.to_json()))
        out = io.StringIO()
        found = step.compare_with(Console(out, {}), here, file)
        assert {(d.check, d.what) for d in found} >= {
            ("driver", "status"),
            ("driver", "driver"),
        }
        assert "driver.driver: 570.86.10 here, 470.82.01 there" in out.getvalue()

    def test_no_difference_is_said(self, tmp_path):
        """Two equal hosts get one line."""
        here, _ = run_doctor()
        file = tmp_path / "same.json"
        file.write_text(json.dumps(json.loads(json.dumps(here.to_json()))))
        out = io.StringIO()
        plain = json.loads(json.dumps(here.to_json()))
        assert compare(plain, read_report(file)) == []
        assert step.compare_with(Console(out, {}), here, file) == []
        assert "no difference from" in out.getvalue()

    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "not json",
            "[]",
            '{"results": 1}',
            '{"results": [1]}',
            '{"results": [{"id": "a", "data": 3}]}',
            '{"results": [{"status": "ok"}]}',
        ],
    )
    def test_a_file_that_is_no_report(self, tmp_path, text):
        """A missing, broken or foreign file is wrong usage and is left alone."""
        file = tmp_path / "report.json"
        if text is not None:
            file.write_text(text)
        with pytest.raises(UsageError) as caught:
            read_report(file)
        assert str(file) in caught.value.what
        assert "doctor --json" in caught.value.hint
