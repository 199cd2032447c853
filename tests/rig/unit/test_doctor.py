# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The doctor as a whole, on a healthy machine and on others."""

import io
import json
import time

import pytest

from tests.rig.support import fakemachine as fake
from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.steps import doctor as step
from tools.rig.steps.checks import registered
from tools.rig.steps.checks.probes import Probes
from tools.rig.steps.checks.registry import Check, Outcome


def make(id, run, topic="topic", limit_s=5.0):
    """Return a check around a function."""
    return Check(id, f"title of {id}", topic, "a source", limit_s, run)


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
        report, _ = run_doctor(probes=probes, only=["gpus,driver,module"])
        assert {r.status for r in report.results} == {"skip"}
        assert report.exit_code == 0

    @pytest.mark.parametrize(
        ("only", "ids"),
        [
            (["git"], ["git"]),
            (["git,uv"], ["uv", "git"]),
            (["network", "git"], ["git", "network"]),
            (["proxy,git"], ["git", "proxy"]),
            (
                ["toolchain"],
                ["settings", "toolkits", "toolkit", "compilers", "compiler"],
            ),
            (["python"], ["python"]),
            (["memory", "tmpdir"], ["memory", "tmpdir"]),
        ],
    )
    def test_only_takes_names_and_topics(self, only, ids):
        """Names, comma lists and topics choose checks; a name goes before a topic."""
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
