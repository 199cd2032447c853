# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The doctor on the machine that the tests run on, with its real tools."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest

from tests.rig.support.nobody import as_nobody, needs_root
from tools.rig.base import config
from tools.rig.base.console import Console
from tools.rig.builds import profile as profiles
from tools.rig.host import cuda, gpu, memory, pci, programs, system
from tools.rig.steps import doctor as step
from tools.rig.steps.checks import registered

pytestmark = pytest.mark.real


def examine(checkout, only=(), **cli):
    """Run the doctor for V100s and return its report and what it printed.

    Nothing that an earlier run of this user remembered is seen.
    """
    out = io.StringIO()
    env = {k: v for k, v in os.environ.items() if k != "CUDA_HOME"}
    settings = config.resolve(cli=cli, env={})
    report = step.doctor(
        Console(out, {}),
        settings,
        profiles.load("v100-cu128"),
        only=only,
        checkout=checkout,
        env={**env, "XDG_STATE_HOME": str(checkout.parent / "state")},
    )
    return report, out.getvalue()


@pytest.fixture
def checkout(tmp_path):
    """Return an empty checkout with a name that is no plain word."""
    place = tmp_path / "fork 'é' copy"
    place.mkdir()
    return place


def _lives(pid):
    """Say whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path("/proc", pid, "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def by_id(report):
    """Return the results by name."""
    return {r.id: r for r in report.results}


class TestThisMachine:
    """What the doctor says about the machine at hand."""

    def test_every_check_answers(self, checkout):
        """No check crashes, the verdict is one line, and all of it is plain JSON."""
        report, text = examine(checkout)
        assert {r.id for r in report.results} == {c.id for c in registered()}
        assert [r.detail for r in report.results if "crashed" in r.detail] == []
        assert report.verdict.line in text
        assert "\n" not in report.verdict.line
        assert json.loads(json.dumps(report.to_json()))["schema"] == 1
        assert report.exit_code == (3 if report.verdict.kind == "cannot" else 0)

    def test_nothing_is_left_behind(self, checkout):
        """Measuring leaves no file in the checkout."""
        examine(checkout, only=["checkout-disk"])
        assert list(checkout.iterdir()) == []

    def test_machine_without_gpu_is_skipped(self, checkout):
        """Without driver and card every check about them is skipped, none fails."""
        if gpu.read().state != "absent" or pci.nvidia_cards():
            pytest.skip("this machine has a driver or a card")
        report, _ = examine(checkout, only=["gpus,driver,nvlink"])
        found = by_id(report)
        assert found["gpus"].status == "skip"
        assert found["driver"].status == "skip"
        assert found["nvlink"].status == "skip"
        assert report.exit_code == 0

    def test_machine_with_a_driver_is_read(self, checkout):
        """With a driver its version is read and nothing about it is unknown."""
        seen = gpu.read()
        if seen.state != "present":
            pytest.skip(f"no driver here: {seen.reason}")
        found = by_id(examine(checkout, only=["gpus,volta-driver,nvlink"])[0])
        assert found["gpus"].data["cards"][0]["name"] == seen.cards[0].name
        assert found["volta-driver"].data["branch"] == int(seen.driver.split(".")[0])
        if len(seen.cards) > 1:
            assert found["nvlink"].status in ("ok", "warn")

    def test_cuda_13_alone_is_too_new_and_worked_round(self, checkout):
        """A real CUDA 13 nvcc is judged too new for sm_70, and another is named."""
        env = {k: v for k, v in os.environ.items() if k != "CUDA_HOME"}
        found = cuda.find(env)
        new = [t for t in found if t.sms and t.sms[0] > 70]
        if not new or any(t.can(70) for t in found):
            pytest.skip("needs CUDA 13 as the only toolkit")
        report, _ = examine(checkout, only=["toolchain"])
        listed = by_id(report)["toolkits"]
        assert listed.data["toolkits"][0]["version"] == new[0].version
        chosen = by_id(report)["toolkit"]
        assert f"cannot compile for sm_70 (its lowest is sm_{new[0].sms[0]})" in (
            chosen.detail
        )
        assert chosen.status in ("warn", "fail")
        assert (chosen.status == "warn") == bool(chosen.workaround)

    def test_cuda_13_alone_and_offline_cannot(self, checkout):
        """Offline nothing can be brought: exit 3, with what to install."""
        found = cuda.find({k: v for k, v in os.environ.items() if k != "CUDA_HOME"})
        if any(t.can(70) for t in found):
            pytest.skip("a toolkit for sm_70 is installed here")
        root = checkout.parent / "root"
        report, text = examine(
            checkout, only=["toolkit"], offline=True, local_root=str(root)
        )
        assert report.exit_code == 3
        assert text.rstrip().splitlines()[-1].startswith("hint: install CUDA")

    def test_no_slower_than_three_times_the_slowest_probe(self, checkout):
        """Probes run beside each other and not one after the other."""
        report, _ = examine(checkout)
        assert report.seconds <= 3 * max(report.probes.values())

    def test_two_runs_on_one_host_do_not_differ(self, checkout):
        """What is compared between hosts does not change from run to run."""
        quiet = ["system", "toolchain", "driver", "network", "git", "uv"]
        one, other = (examine(checkout, only=quiet)[0].to_json() for _ in range(2))
        assert step.compare(one, other) == []

    def test_an_ordinary_user_may_ask(self, checkout):
        """Without any right the facts about the machine are still read."""
        needs_root()

        def work():
            here = system.distribution()
            have = memory.read()
            seen = gpu.read()
            return [here.id, have.total, memory.cores().usable, seen.state]

        assert as_nobody(work) == [
            system.distribution().id,
            memory.read().total,
            memory.cores().usable,
            gpu.read().state,
        ]


class TestFacts:
    """Facts against what the kernel and real programs say."""

    def test_memory_is_the_kernels(self):
        """Total memory is that of sysconf, and usable is never more."""
        have = memory.read()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert abs(have.total - pages) < 1 << 20
        assert 0 < have.usable <= have.total

    def test_cores_are_the_schedulers(self):
        """Never more than the affinity mask allows."""
        assert 1 <= memory.cores().usable <= len(os.sched_getaffinity(0))

    def test_git_says_its_version(self):
        """A real program answers with a version."""
        found = programs.find("git", os.environ)
        if found is None:
            pytest.skip("git is not installed")
        assert found.version.count(".") >= 1

    def test_program_that_hangs(self, tmp_path):
        """A real program that never answers is given up, and its children with it."""
        path = tmp_path / "nvcc"
        mark = tmp_path / "child"
        path.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > '{mark}'\nwait\n")
        path.chmod(0o755)
        start = time.monotonic()
        found = programs.probe("nvcc", path, timeout=1)
        assert time.monotonic() - start < 20
        assert "did not answer within 1 s" in found.problem
        assert not _lives(mark.read_text().strip())

    def test_program_that_prints_bytes_at_random(self, tmp_path):
        """Output that is no text is an unknown version."""
        path = tmp_path / "cmake"
        path.write_text("#!/bin/sh\nprintf '\\377\\376\\000'\n")
        path.chmod(0o755)
        assert programs.probe("cmake", path).version == ""

    def test_program_that_cannot_be_started(self, tmp_path):
        """A file that the kernel refuses is a problem and no crash."""
        path = tmp_path / "ninja"
        path.write_bytes(b"\x7fELF broken")
        path.chmod(0o755)
        found = programs.probe("ninja", path)
        assert (found.version, "does not run" in found.problem) == ("", True)
