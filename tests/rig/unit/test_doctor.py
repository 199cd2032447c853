# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How checks are run, what they come to, and how two hosts are compared."""

import io
import json
import threading
import time

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.steps import doctor as step
from tools.rig.steps.checks import registered, registry
from tools.rig.steps.checks.probes import Probes
from tools.rig.steps.checks.registry import Check, Outcome
from tools.rig.steps.checks.runner import Result, run_checks
from tools.rig.steps.checks.verdict import compare, judge, read_report


def make(id, run, topic="topic", limit_s=5.0):
    """Return a check around a function."""
    return Check(id, f"title of {id}", topic, "a source", limit_s, run)


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


class TestRunner:
    """Running checks beside each other."""

    def test_results_come_in_the_order_of_the_checks(self):
        """A slow first check does not let a fast second one overtake it."""
        gate = threading.Event()

        def slow(facts):
            gate.wait(5)
            return Outcome("ok", "slow")

        def fast(facts):
            gate.set()
            return Outcome("warn", "fast", "type this", "a round", {"a": 1}, {"b": 2})

        found = list(run_checks([make("a", slow), make("b", fast)], fake.facts()))
        assert [r.id for r in found] == ["a", "b"]
        last = found[1]
        assert (last.status, last.detail, last.hint) == ("warn", "fast", "type this")
        assert (last.workaround, last.data, last.measured) == (
            "a round",
            {"a": 1},
            {"b": 2},
        )
        assert (last.source, last.topic) == ("a source", "topic")

    def test_crash_becomes_unknown(self):
        """A check that crashes is unknown with the error's name; the others go on."""

        def crash(facts):
            raise ZeroDivisionError("by zero")

        checks = [make("a", crash), make("b", lambda facts: Outcome("ok", "fine"))]
        first, second = run_checks(checks, fake.facts())
        assert first.status == "unknown"
        assert "ZeroDivisionError: by zero" in first.detail
        assert second.status == "ok"

    def test_expected_error_becomes_unknown_with_its_hint(self):
        """An error that we know keeps its own words and its hint."""

        def refuse(facts):
            raise CannotError("no disk", hint="buy one")

        (only,) = run_checks([make("a", refuse)], fake.facts())
        assert (only.status, only.detail, only.hint) == (
            "unknown",
            "no disk",
            "buy one",
        )

    def test_hanging_check_becomes_unknown(self):
        """After its limit a check is left behind, and says so when it is slow."""
        gate = threading.Event()
        told = []

        def hang(facts):
            gate.wait(30)
            return Outcome("ok", "too late")

        start = time.monotonic()
        checks = [make("a", hang, limit_s=0.4), make("b", lambda f: Outcome("ok", "x"))]
        found = list(
            run_checks(
                checks,
                fake.facts(),
                slow_s=0.1,
                on_slow=lambda check, spent: told.append(check.id),
            )
        )
        gate.set()
        assert time.monotonic() - start < 5
        assert [r.status for r in found] == ["unknown", "ok"]
        assert "no answer within" in found[0].detail
        assert told == ["a"]

    def test_late_answer_is_thrown_away(self):
        """A check that answers after its limit stays unknown, and appears once."""
        gate = threading.Event()

        def late(facts):
            gate.wait(5)
            return Outcome("ok", "late")

        def patient(facts):
            time.sleep(0.3)
            gate.set()
            time.sleep(0.2)
            return Outcome("ok", "patient")

        found = list(
            run_checks([make("a", late, limit_s=0.1), make("b", patient)], fake.facts())
        )
        assert [(r.id, r.status) for r in found] == [("a", "unknown"), ("b", "ok")]

    def test_a_fact_is_read_once(self):
        """Two checks that ask for the same fact share one probe."""
        calls = []

        def distribution():
            calls.append(1)
            time.sleep(0.05)
            return fake.DEBIAN

        facts = fake.facts(distribution=distribution)

        def ask(facts):
            return Outcome("ok", facts.distribution.id)

        list(run_checks([make(str(n), ask) for n in range(4)], facts))
        assert len(calls) == 1
        assert facts.seconds["distribution"] >= 0.05

    def test_a_failing_probe_fails_for_all_who_ask(self):
        """A probe that fails makes each check that needs it unknown, and runs once."""
        calls = []

        def broken():
            calls.append(1)
            raise OSError("no such device")

        facts = fake.facts(distribution=broken)

        def ask(facts):
            return Outcome("ok", facts.distribution.id)

        found = list(run_checks([make("a", ask), make("b", ask)], facts))
        assert {r.status for r in found} == {"unknown"}
        assert len(calls) == 1


class TestRegistry:
    """The list of checks."""

    def test_names_are_unique_and_complete(self):
        """Every check has a title and a source, and the list shows them all."""
        checks = registered()
        assert len({c.id for c in checks}) == len(checks)
        assert all(c.title and c.source and c.limit_s > 0 for c in checks)
        assert step.list_checks() == [(c.id, c.title) for c in checks]

    @pytest.mark.parametrize(
        "id",
        [
            "distribution", "glibc", "toolkits", "toolkit", "compilers", "compiler",
            "gpus", "driver", "volta-driver", "module", "nvlink", "torch", "python",
            "uv", "cmake", "ninja", "patch", "cache", "git", "memory", "tmpdir",
            "environment", "space-cache", "space-build", "checkout-disk",
            "checkout-owner", "cudnn", "libcuda-stub", "vllm-variables", "shm",
            "proxy", "machine",
        ],
    )  # fmt: skip
    def test_every_promised_check_is_there(self, id):
        """Nothing of the promised list is missing."""
        assert id in {c.id for c in registered()}

    def test_a_name_cannot_be_taken_twice(self):
        """Two checks of one name would hide each other."""
        with pytest.raises(ValueError, match="two checks"):
            registry.check("git", "again", source="x")(lambda facts: None)

    def test_unknown_status_is_refused(self):
        """A misspelt status must not pass for a good one."""
        with pytest.raises(ValueError, match="fine"):
            Outcome("fine", "x")


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


class TestDoctor:
    """The whole step."""

    def test_healthy_machine_is_ready(self):
        """Everything in order: exit 0, one ready line, no hint below it."""
        report, text = run_doctor()
        assert report.verdict.line == "ready: this machine can build v100-cu128"
        assert report.exit_code == 0
        assert text.rstrip().endswith(report.verdict.line)
        bad = [r for r in report.results if r.status not in ("ok", "skip")]
        assert bad == []

    def test_cuda_13_alone_is_a_work_round(self):
        """CUDA 13 as the only toolkit means that one is brought, not that it fails."""
        found = [fake.toolkit("13.0.88", (75, 80, 121))]
        report, text = run_doctor(
            probes=fake.probes(toolkits=lambda env, folder: found)
        )
        assert report.verdict.kind == "ready with work-rounds"
        assert "CUDA 12.4 brought without root" in report.verdict.line
        assert report.exit_code == 0
        assert "CUDA 13.0 cannot compile for sm_70" in text

    def test_cannot_is_exit_3_and_ends_with_the_hint(self):
        """Without a compiler the line says why, and the last one what to do."""
        probes = fake.probes(compilers=lambda env: [], have_dpkg=lambda: False)
        report, text = run_doctor(probes=probes)
        assert report.exit_code == 3
        lines = text.rstrip().splitlines()
        assert lines[-2].startswith("cannot build v100-cu128: C++ compiler")
        assert lines[-1] == "hint: sudo apt-get install g++"

    def test_no_gpu_is_skipped_and_not_failed(self):
        """A machine without a driver can build."""
        absent = fake.Gpus("absent", "no NVIDIA driver")
        probes = fake.probes(
            gpus=lambda: absent, pci_cards=lambda: [], module=lambda: None
        )
        report, _ = run_doctor(probes=probes, only=["driver"])
        assert {r.status for r in report.results} == {"skip"}
        assert report.exit_code == 0

    @pytest.mark.parametrize(
        ("only", "ids"),
        [
            (["git"], ["git"]),
            (["git,uv"], ["uv", "git"]),
            (["network", "git"], ["git", "proxy"]),
            (["toolchain"], ["toolkits", "toolkit", "compilers", "compiler"]),
        ],
    )
    def test_only_takes_names_and_topics(self, only, ids):
        """Checks are chosen by name, by comma list and by topic, in the usual order."""
        report, _ = run_doctor(only=only)
        assert [r.id for r in report.results] == ids

    def test_unknown_name_is_wrong_usage(self):
        """A check that does not exist is named, with where the list is."""
        with pytest.raises(UsageError) as caught:
            run_doctor(only=["gti"])
        assert "'gti'" in caught.value.what
        assert caught.value.hint == "invoke doctor --list"

    def test_hints_are_shown_for_what_needs_doing(self):
        """A hint of a good result is not printed, that of a warning is."""
        checks = [
            make("a", lambda f: Outcome("ok", "fine", hint="never")),
            make("b", lambda f: Outcome("warn", "careful", hint="type this")),
        ]
        _, text = run_doctor(checks)
        assert "never" not in text
        assert "hint: type this" in text

    def test_slow_check_says_that_it_runs(self):
        """After a while a running check is named."""

        def slow(facts):
            time.sleep(0.3)
            return Outcome("ok", "done")

        _, text = run_doctor([make("a", slow)], slow_s=0.05)
        assert "still at it" in text
        assert "title of a" in text

    def test_defaults_are_this_machine(self, monkeypatch, tmp_path):
        """Without arguments our own environment and the current folder are taken."""
        monkeypatch.chdir(tmp_path)
        seen = {}

        def spy(facts):
            seen.update(source=facts.source, env=facts.env, probes=facts.probes)
            return Outcome("ok", "x")

        console = Console(io.StringIO(), {})
        settings, profile = fake.settings(), fake.profile()
        step.doctor(console, settings, profile, checks=[make("a", spy)])
        assert seen["source"] == tmp_path
        assert "PATH" in seen["env"]
        assert seen["probes"] == Probes()

    def test_report_is_plain_json(self):
        """The report survives a round trip through JSON with all its parts."""
        report, _ = run_doctor()
        data = json.loads(json.dumps(report.to_json()))
        assert data["profile"] == "v100-cu128"
        assert data["verdict"]["kind"] == "ready"
        assert {r["id"] for r in data["results"]} == {c.id for c in registered()}
        assert data["seconds"] > 0
        assert "toolkits" in data["probes"]


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
