# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Each source of a bundle: what it takes, what it leaves, what it does when broken."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rig.support import fakenvml, fakescene
from tests.rig.support.fakeproc import FakeProc
from tools.rig.base.config import resolve
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import profile, survey
from tools.rig.builds.target import Target
from tools.rig.host import credentials, gpu
from tools.rig.host import identity as identities
from tools.rig.steps import bundle
from tools.rig.steps.bundle import Seams
from tools.rig.steps.bundling import builds as of_builds
from tools.rig.steps.bundling import machine as of_machine
from tools.rig.steps.bundling import site as of_site
from tools.rig.steps.bundling import steps as of_steps
from tools.rig.steps.bundling import summary as of_summary
from tools.rig.steps.bundling import words as of_words
from tools.rig.steps.bundling.site import Collector, Part, Site, excerpt


def site(**values: Any) -> Site:
    """Return a site that has what a test gives it."""
    return Site(**{"env": {"PATH": "/bin"}, "settings": resolve({}, {}), **values})


def record(root: Path, name: str, result: str, log: str | None = "INFO ok\n") -> None:
    """Write the record of a build, and its log."""
    for folder in (root / "records", root / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    file = root / "logs" / f"{name}.log"
    if log is not None:
        file.write_text(log)
    data = {"id": name, "result": result, "log": str(file), "steps": []}
    (root / "records" / f"{name}.json").write_text(json.dumps(data))


class TestExcerpt:
    """Beginning and end of a file."""

    def test_small_file_is_whole(self, tmp_path: Path) -> None:
        """A file that fits is taken as it is."""
        (tmp_path / "a").write_bytes(b"one\r\ntwo\rthree\xff\n")
        assert excerpt(tmp_path / "a") == ("one\ntwo\nthree\ufffd\n",)

    def test_cuts_where_lines_end(self, tmp_path: Path) -> None:
        """No line is cut in two, and the number of bytes left out is told."""
        (tmp_path / "a").write_text("".join(f"line {n:04}\n" for n in range(100)))
        begun, gap, ended = excerpt(tmp_path / "a", 25, 25)
        assert begun == "line 0000\nline 0001"
        assert ended == "line 0098\nline 0099\n"
        assert f"[... {1000 - 19 - 20} bytes" in gap

    def test_no_gap_no_text(self, tmp_path: Path) -> None:
        """A stretch without any gap is left out: half a secret is unknown to all."""
        (tmp_path / "a").write_text("x" * 1000)
        begun, _, ended = excerpt(tmp_path / "a", 100, 100)
        assert (begun, ended) == ("", "")
        (tmp_path / "b").write_text("word " * 200)
        begun, _, ended = excerpt(tmp_path / "b", 12, 12)
        assert (begun, ended) == ("word word", "word word ")

    def test_end_alone(self, tmp_path: Path) -> None:
        """Nothing of the beginning may be asked for."""
        (tmp_path / "a").write_text("one\ntwo\nthree\n")
        assert excerpt(tmp_path / "a", 0, 9)[-1] == "three\n"

    def test_utf16(self, tmp_path: Path) -> None:
        """A log of PowerShell is read, too."""
        (tmp_path / "a").write_bytes("password: x\n".encode("utf-16"))
        assert excerpt(tmp_path / "a") == ("password: x\n",)


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


class TestCredentials:
    """Where secrets are looked up."""

    def test_environment(self) -> None:
        """Values of telling names, and passwords in the middle of others."""
        env = {
            "HF_TOKEN": " tok1 ",
            "URL": "https://bob:pw1@h/x",
            "ONLY": "https://abcdefghij0123456789@h/x",
            "USUAL": "ssh://git@h/x",
            "EMPTY_TOKEN": "",
            "PATH": "/bin",
        }
        found = set(credentials.of_environment(env))
        assert found == {"tok1", "pw1", "abcdefghij0123456789"}

    @pytest.mark.parametrize(
        ("name", "text", "secret"),
        [
            ("token", "plainToken\n", "plainToken"),
            (".netrc", "machine a login b password pw1", "pw1"),
            ("pip.conf", "[global]\nindex-url = https://b:p@ss@h/x\n", "p@ss"),
            ("config.json", '{"auth": "Ym9iOnNlc2FtZQ=="}', "sesame"),
            ("credentials", "aws_secret_access_key = a/b+c\n", "a/b+c"),
            ("hosts.yml", "  oauth_token: gho1\n", "gho1"),
            ("x.json", '{"private_key": "abc", "b": 1}', "abc"),
        ],
    )
    def test_files(self, name: str, text: str, secret: str) -> None:
        """The forms in which tools keep passwords are read."""
        assert secret in set(credentials.of_file(name, text))

    def test_everywhere(self, tmp_path: Path) -> None:
        """Environment, processes, home, checkout and system are all read."""
        home, checkout = tmp_path / "home", tmp_path / "checkout"
        (home / ".cache/huggingface").mkdir(parents=True)
        (home / ".cache/huggingface/token").write_text("fromFile1")
        (checkout / ".git").mkdir(parents=True)
        (checkout / ".git/config").write_text("url = https://u:fromGit1@h/x\n")
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/pip.conf").write_text("index-url = https://u:fromPip1@h/\n")
        (tmp_path / "hf").mkdir()
        (tmp_path / "hf/token").write_text("fromHome1")
        proc = FakeProc(tmp_path / "proc")
        proc.add(
            9,
            cmdline=["x", "--api-key", "fromArg1", "A_TOKEN=fromWord1", "-v"],
            environ={"B_TOKEN": "fromEnv1"},
        )
        env = {"HOME": str(home), "HF_HOME": str(tmp_path / "hf"), "C_TOKEN": "own1"}
        found = set(
            credentials.secrets(env, checkout=checkout, proc=proc.root, root=tmp_path)
        )
        assert found >= {
            *("fromFile1", "fromGit1", "fromPip1", "fromHome1", "fromArg1"),
            *("fromWord1", "fromEnv1", "own1"),
        }

    def test_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What exists and cannot be read is told: it could not be masked."""
        (tmp_path / ".netrc").write_text("x")
        is_file = Path.is_file

        def refuse(path: Path) -> bool:
            if path.name == ".netrc":
                raise PermissionError(13, "Permission denied")
            return is_file(path)

        monkeypatch.setattr(Path, "is_file", refuse)
        told: list[str] = []
        env = {"HOME": str(tmp_path)}
        none = tmp_path / "none"
        list(credentials.secrets(env, proc=none, root=none, note=told.append))
        assert "cannot look for what to mask in .netrc (Permission denied)" in told

    def test_identity(self, tmp_path: Path) -> None:
        """Users, hosts, domains, homes and ids come from where the system has them."""
        etc = tmp_path / "etc"
        etc.mkdir()
        (etc / "hostname").write_text("castle\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n10.0.0.2 castle.hyrule.org\n")
        (etc / "resolv.conf").write_text("nameserver 10.0.0.1\nsearch lake.org local\n")
        (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\nlink:x:1001:1::/h:/b\n")
        (etc / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        proc = FakeProc(tmp_path / "proc")
        (proc.root / "sys/kernel/random/boot_id").write_text("12-34-56-78\n")
        env = {"HOME": "/home/zelda", "USER": "zelda", "SUDO_UID": "0"}
        found = identities.identity(
            env,
            checkout=tmp_path,
            root=tmp_path,
            proc=proc.root,
            fqdn=lambda: "c.d.org",
        )
        assert {"zelda", "link"} <= set(found.users)
        assert {"castle", "c"} <= set(found.hosts)
        assert {"hyrule.org", "lake.org", "d.org"} <= set(found.domains)
        assert "/home/zelda" in found.homes
        assert found.ids == (
            *("0123456789abcdef0123456789abcdef", "12-34-56-78", "12345678"),
        )


def test_collectors_have_limits() -> None:
    """Every collector has a time limit, and no two have one name."""
    names = [one.name for one in bundle.COLLECTORS]
    assert len(set(names)) == len(names)
    assert all(0 < one.limit_s <= 120 for one in bundle.COLLECTORS)


def test_expected_errors_are_notes() -> None:
    """A collector that fails as expected is told by its message."""

    def fail(at: Site) -> list[Part]:
        raise StepFailed("no disk")

    at = site()
    assert of_site.collect([Collector("x", fail)], at) == []
    assert at.problems == ["x: no disk"]
