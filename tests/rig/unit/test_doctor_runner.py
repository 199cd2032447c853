# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How checks are registered and run beside each other."""

import threading
import time

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.errors import CannotError
from tools.rig.steps import doctor as step
from tools.rig.steps.checks import registered, registry
from tools.rig.steps.checks.registry import Check, Outcome
from tools.rig.steps.checks.runner import run_checks


def make(id, run, topic="topic", limit_s=5.0):
    """Return a check around a function."""
    return Check(id, f"title of {id}", topic, "a source", limit_s, run)


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
        assert step.list_checks() == [(c.id, c.topic, c.title) for c in checks]

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
