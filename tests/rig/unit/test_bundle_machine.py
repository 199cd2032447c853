# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a bundle says of the machine, its processes and its cards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rig.support import fakenvml
from tests.rig.support.bundled import site
from tests.rig.support.fakeproc import FakeProc
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import profile, survey
from tools.rig.builds.target import Target
from tools.rig.host import gpu
from tools.rig.steps import bundle
from tools.rig.steps.bundle import Seams
from tools.rig.steps.bundling import machine as of_machine
from tools.rig.steps.bundling import site as of_site
from tools.rig.steps.bundling import words as of_words
from tools.rig.steps.bundling.site import Part


class TestMachine:
    """Facts of the machine."""

    def test_machine(self) -> None:
        """System, memory and places are plain data."""
        at = site(profile=profile.load("sample"))
        (part,) = of_machine.machine(at)
        assert json.loads(json.dumps(part.content))["profile"] == "sample"
        assert part.content["cores"] >= 1

    def test_no_cards(self) -> None:
        """A machine without a driver is told with its reason."""
        nvml = fakenvml.FakeNvml(fail={"nvmlInit": 9})
        at = site(gpus=lambda: gpu.read(nvml))
        (part,) = of_machine.nvml(at)
        assert part.content["state"] == "absent"
        assert at.problems == ["cards: the NVIDIA kernel module is not loaded"]

    def test_time_out(self, fp: Any) -> None:
        """A program that hangs is a note with the seconds."""

        def slow(argv: Any, **how: Any) -> Any:
            return SimpleNamespace(
                timed_out=True, ok=False, out="half", err="", code=-9
            )

        at = site(run=slow)
        assert of_machine.smi(at) == [Part("nvidia-smi-q.txt", "half")]
        assert at.problems == ["nvidia-smi -q: no answer within 40 s"]

    def test_kernel_lines(self, fp: Any) -> None:
        """Only lines about cards, memory and disks are taken."""
        lines = [
            "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            "[2.0] Out of memory: Killed process 12 (cc1plus)",
            "[3.0] usb 1-1: Product: Keyboard of somebody",
            "[4.0] cc1plus invoked oom-killer: gfp_mask=0x1",
        ]
        fp.register(["dmesg"], stdout="\n".join(lines))
        journal = ["journalctl", "-k", "-n", "20000", "--no-pager", "--no-hostname"]
        fp.register([*journal, "-q"], returncode=1, stderr="No journal files")
        at = site()
        (part,) = of_machine.kernel(at)
        assert part.content.splitlines() == [lines[0], lines[1], lines[3]]
        assert at.problems == [
            "journalctl -k -n: failed with status 1 (No journal files)"
        ]

    def test_uv_lists_the_packages(self, tmp_path: Path, fp: Any) -> None:
        """Uv is asked without the network, whatever Python is in the environment."""
        python = str(tmp_path / "bin" / "python")
        fp.register(
            [fp.program("uv"), "pip", "list", "--python", python], stdout="torch 2.10\n"
        )
        at = site(environment=tmp_path)
        assert of_machine.packages(at) == [Part("packages.txt", "torch 2.10\n")]

    def test_no_uv(
        self, tmp_path: Path, fp: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without uv the environment's own pip is asked."""

        def none(**how: Any) -> Any:
            raise StepFailed("uv is not installed")

        monkeypatch.setattr(of_machine, "uv_command", none)
        python = str(tmp_path / "bin" / "python")
        argv = [python, "-I", "-m", "pip", "list", "--disable-pip-version-check"]
        fp.register(argv, stdout="vllm 1\n")
        at = site(environment=tmp_path)
        assert of_machine.packages(at) == [Part("packages.txt", "vllm 1\n")]
        assert at.problems == ["packages: uv is not installed"]

    def test_environment(self) -> None:
        """Only variables of the allow-list are shown, and never a secret's value."""
        env = {"HF_TOKEN": "x", "MAX_JOBS": "2", "MY_DIARY": "y", "VLLM_API_KEY": "z"}
        (part,) = of_machine.environment(site(env=env))
        assert part.content == "HF_TOKEN is set\nMAX_JOBS=2\nVLLM_API_KEY is set\n"

    def test_processes(self, tmp_path: Path) -> None:
        """Servers and builds are shown, other people's programs are not."""
        proc = FakeProc(tmp_path)
        proc.add(
            50,
            cmdline=["python3", "-m", "vllm.entrypoints.openai.api_server"]
            + ["--model", "Qwen/Q", "--api-key", "k", "--my-note=private", "--port=80"],
            environ={"VLLM_X": "1", "DIARY": "z"},
        )
        proc.add(51, cmdline=["/usr/bin/mail", "to", "mother"])
        proc.add(52, cmdline=["ninja", "-j", "4"], readable=False)
        at = site(proc=tmp_path)
        (part,) = of_machine.running(at)
        assert "--model Qwen/Q --api-key ... --my-note=... --port=80" in part.content
        assert "VLLM_X=1" in part.content and "may not be read" in part.content
        for word in ("mother", "private", "DIARY"):
            assert word not in part.content
        assert set(at.facts["users"]) == {"root"}

    def test_too_many_processes(self, tmp_path: Path) -> None:
        """A thousand compiles do not fill the bundle."""
        proc = FakeProc(tmp_path)
        for pid in range(100, 180):
            proc.add(pid, cmdline=["ninja"])
        at = site(proc=tmp_path)
        (part,) = of_machine.running(at)
        assert part.content.count("pid ") == of_machine.MOST_PROCESSES
        assert "the rest is left out" in at.problems[0]


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["/env/bin/python", "x"], True),
        (["VLLM::EngineCore"], True),
        (["ray::Worker"], True),
        (["vllm", "serve", "m"], True),
        (["/usr/bin/python3.12", "-m", "tools.rig.diagnose"], True),
        (["/usr/bin/python3", "/opt/app.py"], False),
        (["bash", "-c", "vllm"], False),
    ],
)
def test_is_ours(words: list[str], ours: bool) -> None:
    """A server, a build or a part of one is told from anything else."""
    assert of_words.is_ours(words, Path("/env")) is ours


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("vllm serve m --seed 1 extra", "vllm serve m --seed 1 ..."),
        ("nvcc -c secret.cu -j 4 -O2", "nvcc -c ... -j 4 -O2"),
        ("ninja --unknown 7 --other word", "ninja --unknown 7 --other ..."),
        (f"cmake -D{'X' * 80}=1", "cmake ..."),
    ],
)
def test_argument_words(words: str, shown: str) -> None:
    """Values are shown behind allowed options, and where they are only numbers."""
    assert " ".join(of_words.argument_words(words.split())) == shown


class TestLocate:
    """Where a bundle is made."""

    def test_broken_settings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A setting that cannot be read is a note, and defaults hold."""
        env = {"HOME": str(tmp_path), "MAX_JOBS": "many"}
        monkeypatch.setattr(
            of_site.survey, "remembered_root", lambda file: (None, False)
        )
        at = of_site.locate({}, env)
        assert at.settings.jobs is None
        assert any(p.startswith("settings: ") for p in at.problems)

    def test_finds_root_and_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The named root, or ours in it, and the environment of the checkout."""
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        found = Target(checkout, profile.load("sample"))
        monkeypatch.setattr(of_site.target, "find_here", lambda settings: found)
        monkeypatch.setattr(
            of_site.survey, "remembered_root", lambda file: (None, False)
        )
        root = tmp_path / "data" / survey.NAME
        (root / "records").mkdir(parents=True)
        made = root / "venvs" / place_id(checkout)
        made.mkdir(parents=True)
        env = {"HOME": str(tmp_path), "ONECAT_LOCAL_ROOT": str(tmp_path / "data")}
        at = of_site.locate({}, env)
        assert at.checkout == checkout
        assert at.root == StateRoot(root)
        assert at.environment == made.resolve()

    def test_nothing_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No target, no state root, no environment: three notes and no error."""

        def none(settings: Any) -> Any:
            raise StepFailed("no target")

        monkeypatch.setattr(of_site.target, "find_here", none)
        monkeypatch.setattr(of_site, "HERE", tmp_path)
        monkeypatch.setattr(
            of_site.survey, "remembered_root", lambda file: (None, False)
        )
        at = of_site.locate({}, {"HOME": str(tmp_path)})
        assert (at.checkout, at.root, at.environment) == (None, None, None)
        assert at.problems[0] == "target: no target"
        assert at.problems[1].startswith("state root: there is none")

    def test_a_root_without_builds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A root in which nothing was built yet is one all the same."""
        monkeypatch.setattr(of_site.survey, "remembered_root", _unreadable)
        env = {"HOME": str(tmp_path), "ONECAT_LOCAL_ROOT": str(tmp_path)}
        at = of_site.locate({}, env)
        assert at.root == StateRoot(tmp_path)
        assert any("state root: cannot read" in p for p in at.problems)

    def test_it_hangs(self, tmp_path: Path) -> None:
        """Where even that hangs, the bundle goes on with nothing."""

        def hang(cli: Any, env: Any) -> Any:
            time.sleep(20)

        ask = Seams(locate=hang, place_s=0.1)
        at = bundle._site({}, {}, ask)
        assert at.checkout is None
        assert at.problems == ["place: no answer within 0 s"]


def _unreadable(file: Any) -> Any:
    raise StepFailed("cannot read it")
