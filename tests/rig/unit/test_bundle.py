# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A bundle comes out whatever is broken, is whole or absent, and holds no secret."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import stat
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakenvml, planted
from tests.rig.support.fakeproc import FakeProc
from tests.rig.support.planted import Planted
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.builds import profile
from tools.rig.host import credentials, gpu
from tools.rig.host import identity as identities
from tools.rig.steps import bundle
from tools.rig.steps.bundle import COLLECTORS, Seams
from tools.rig.steps.bundling import archive as archives
from tools.rig.steps.bundling import machine
from tools.rig.steps.bundling.site import Collector, Part, Site

GIT = {
    "HEAD": ["log", "-1", "--format=%H %cI"],
    "branch": ["rev-parse", "--abbrev-ref", "HEAD"],
    "describe": ["describe", "--tags", "--always", "--dirty"],
    "remotes": ["remote", "-v"],
    "changed": ["status", "--porcelain=v1", "--untracked-files=normal"],
    "submodules": ["submodule", "status"],
}
COMMIT = "3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a"
CARD = "GPU-12345678-1234-1234-1234-123456789abc"
HEAVY = ("doctor", "plan")


class Bench:
    """A planted machine, fakes for what would start processes, and a console."""

    def __init__(self, folder: Path, fp: Any) -> None:
        self.at = Planted(folder)
        self.fp = fp
        self.out = io.StringIO()
        self.console = Console(self.out, {})
        self.proc = FakeProc(folder / "proc")
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        self.environment = folder / "state" / "venvs" / "x"
        (self.environment / "bin").mkdir(parents=True)
        site_packages = self.environment / "lib" / "python3.12" / "site-packages"
        (site_packages / "torch-2.10.0.dist-info").mkdir(parents=True)
        (site_packages / "vllm-1.3.0.dist-info").mkdir()
        self.fields: dict[str, Any] = {}
        self.doctor: Any = lambda site: [Part("doctor.json", {"host": self.at.host})]

    def site(self, cli: Any, env: Any) -> Site:
        """Return the site of the planted machine."""
        values = {
            "env": self.at.env,
            "settings": resolve({}, {}),
            "profile": profile.load("sample"),
            "checkout": self.checkout,
            "root": StateRoot(self.at.root),
            "environment": self.environment,
            "proc": self.proc.root,
            "gpus": lambda: gpu.read(fakenvml.FakeNvml([fakenvml.card()])),
        }
        return Site(**{**values, **self.fields})

    def identity(self, env: Any, **how: Any) -> Any:
        """Return who we are, of a machine that says so in its own files."""
        etc = self.at.folder / "etc"
        etc.mkdir(exist_ok=True)
        (etc / "hostname").write_text(f"{self.at.host}\n")
        (etc / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        (etc / "resolv.conf").write_text(f"search {self.at.domain}\n")
        return identities.identity(
            env, root=self.at.folder, proc=self.proc.root, fqdn=lambda: "x", **how
        )

    def make(self, **how: Any) -> Any:
        """Make a bundle."""
        light = [c for c in COLLECTORS if c.name not in HEAVY]
        seams = Seams(
            locate=self.site,
            secrets=functools.partial(
                credentials.secrets, proc=self.proc.root, root=self.at.folder
            ),
            identity=self.identity,
            collectors=[*light, Collector("doctor", self.doctor)],
        )
        how = {"output": self.at.folder / "out.tar.gz", **how}
        return bundle.bundle(self.console, {}, env=self.at.env, seams=seams, **how)

    def says(self, argv: list[str], **what: Any) -> None:
        """Let a program answer."""
        self.fp.register(argv, occurrences=9, **what)

    def healthy(self, secrets: str = "") -> None:
        """Let every program answer; `secrets` is a text that all of them print."""
        uv = [self.fp.program("uv"), self.fp.any()]
        self.fp.register(uv, stdout=f"torch 2.10.0\n{secrets}", occurrences=9)
        self.says(
            ["nvidia-smi", "-q"],
            stdout=f"Serial Number : 0324517012345\nGPU UUID : {CARD}\n{secrets}",
        )
        self.says(["nvidia-smi", "topo", "-m"], stdout=f"GPU0 X NV2\n{secrets}")
        ring = f"NVRM: Xid (PCI:0000:3b:00): 79\nusb 1-1: new\nNVRM {secrets}\n"
        self.says(list(machine.DMESG), stdout=ring)
        self.says(list(machine.JOURNAL), stdout=f"Out of memory: {secrets}\n")
        for title, words in GIT.items():
            said = f"{COMMIT} {secrets}\n" if title == "HEAD" else f"{secrets}\n"
            self.says(["git", "-C", str(self.checkout), *words], stdout=said)


@pytest.fixture
def bench(tmp_path: Path, fp: Any) -> Bench:
    """Return a planted machine."""
    return Bench(tmp_path, fp)


def members(archive: Path) -> dict[str, str]:
    """Return the files of an archive by their name in its one folder."""
    with tarfile.open(archive) as tar:
        tops = {member.name.split("/")[0] for member in tar.getmembers()}
        assert len(tops) == 1
        return {
            member.name.partition("/")[2]: (tar.extractfile(member) or io.BytesIO())
            .read()
            .decode()
            for member in tar.getmembers()
            if member.isfile()
        }


class TestSecrets:
    """Nothing that was planted leaves."""

    def test_sixty_secrets_everywhere(self, bench: Bench) -> None:
        """No planted secret and no name is in the archive, the summary or the words."""
        at = bench.at
        bench.proc.add(
            77,
            cmdline=["python3", "-m", "vllm.entrypoints.openai"],
            environ={**at.given, "VLLM_X": at.secrets["env password"]},
        )
        lines = [
            f"{name} {value}"
            for name, value in [("x", v) for v in list(at.secrets.values())[:20]]
        ]
        bench.healthy("\n".join([*lines, f"{at.user} on {at.host} in {at.home}"]))
        bench.doctor = lambda site: [
            Part("doctor.json", {"host": at.host, "k": [*at.env.values()]}),
            Part("doctor.txt", "\n".join(at.env.values())),
        ]
        result = bench.make()
        assert len(at.secrets) >= 60
        archive = Path(result.path)
        text = planted.everything(archive)
        text += Path(result.summary).read_text() + bench.out.getvalue()
        text += json.dumps([result.contents, result.problems])
        text = text.replace(str(archive), "").replace(str(archive.parent), "")
        left = {
            where: form
            for where, value in at.secrets.items()
            for form in planted.remains(value)
            if form in text
        }
        assert not left
        assert not [name for name in at.names if name in text]

    def test_what_matters_stays(self, bench: Bench) -> None:
        """Versions, commits, local addresses and the Xid are still there."""
        bench.healthy()
        found = members(Path(bench.make().path))
        whole = "\n".join(found.values())
        for word in ("12.4.131.0", "580.95.05", "127.0.0.1:8000", "Xid", COMMIT):
            assert word in whole
        assert "usb 1-1" not in whole
        assert CARD not in whole and "<gpu-1>" in whole

    def test_same_value_same_name(self, bench: Bench) -> None:
        """The host has one name in all files, and the counts tell of it."""
        bench.healthy(f"on {bench.at.host}")
        result = bench.make()
        found = members(Path(result.path))
        assert "<host-1>" in found["git.txt"]
        assert "<host-1>" in found["kernel-dmesg.txt"]
        assert result.values["host"] == 1
        assert result.replaced["secret"] >= 60
        counts = json.loads(found["replaced.json"])
        assert counts["different values"]["user"] == 1
        assert "secret" in bench.out.getvalue()

    def test_left_out_when_it_cannot_be_masked(self, bench: Bench) -> None:
        """A part that still holds a secret after masking stays away."""
        bench.healthy()
        bench.doctor = lambda site: [Part("doctor.txt", "x")]
        mask = bundle.Masker.text
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                bundle.Masker,
                "text",
                lambda self, v: bench.at.host if v == "x" else mask(self, v),
            )
            result = bench.make()
        assert "doctor.txt" not in members(Path(result.path))
        assert any("could not be masked" in p for p in result.problems)


class TestBroken:
    """A bundle is wanted most where everything is broken."""

    def test_nothing_works(self, bench: Bench) -> None:
        """Without programs, checkout, builds and driver there still is a bundle."""
        bench.fp.allow_unregistered(False)
        bench.fields = {
            "checkout": None,
            "root": None,
            "environment": None,
            "proc": bench.at.folder / "gone",
            "gpus": lambda: gpu.Gpus("absent", "no driver"),
            "run": lambda argv, **how: (_ for _ in ()).throw(OSError("no programs")),
        }
        result = bench.make()
        found = members(Path(result.path))
        assert {"summary.md", "problems.txt", "replaced.json"} <= set(found)
        assert "no driver" in found["problems.txt"]
        assert "there is no checkout" in found["problems.txt"]
        assert "no programs" in found["problems.txt"]
        assert "No build is recorded" in found["summary.md"]

    def test_programs_fail(self, bench: Bench) -> None:
        """Each failure is noted with what the program said."""
        uv = [bench.fp.program("uv"), bench.fp.any()]
        bench.fp.register(uv, returncode=2, stderr="broken venv", occurrences=9)
        python = str(bench.environment / "bin" / "python")
        pip = [python, "-I", "-m", "pip", "list", "--disable-pip-version-check"]
        bench.says(pip, returncode=1, stderr="No module named pip")
        smi = ["nvidia-smi", "-q"]
        bench.says(smi, returncode=9, stdout="Driver/library version mismatch")
        bench.says(["nvidia-smi", "topo", "-m"], returncode=9)
        refused = "dmesg: read kernel buffer failed: Operation not permitted"
        bench.says(["dmesg"], returncode=1, stderr=refused)
        bench.says(list(machine.JOURNAL), stdout="")
        for words in GIT.values():
            argv = ["git", "-C", str(bench.checkout), *words]
            bench.says(argv, returncode=128, stderr="fatal: detected dubious ownership")
        result = bench.make()
        problems = "\n".join(result.problems)
        for said in (
            "broken venv",
            "No module named pip",
            "version mismatch",
            "not permitted",
            "dubious ownership",
        ):
            assert said in problems
        found = members(Path(result.path))
        # names of what is installed are read without the environment's Python
        assert "torch==2.10.0" in found["packages-on-disk.txt"]
        assert found["kernel-journal.txt"] == "nothing\n"

    def test_one_hangs_and_one_crashes(self, bench: Bench) -> None:
        """A collector that hangs or crashes costs only its own part."""
        bench.healthy()

        def crash(site: Site) -> list[Part]:
            raise ValueError("odd")

        def hang(site: Site) -> list[Part]:
            time.sleep(30)
            return []

        light = [c for c in COLLECTORS if c.name not in HEAVY]
        seams = Seams(
            locate=bench.site,
            secrets=lambda *args, **how: iter(["abcdefgh1"]),
            identity=bench.identity,
            collectors=[*light, Collector("a", crash), Collector("b", hang, 0.2)],
        )
        start = time.monotonic()
        result = bundle.bundle(
            bench.console, {}, output=bench.at.folder / "o", env={}, seams=seams
        )
        assert time.monotonic() - start < 20
        assert "a: ValueError: odd" in result.problems
        assert "b: no answer within 0 s" in result.problems
        assert "nvml.json" in members(Path(result.path))

    def test_secrets_that_hang(self, bench: Bench) -> None:
        """What was found until the time was up is masked, and the rest is told."""
        bench.healthy("uses k3yWithoutName9 twice")

        def slow(*args: Any, **how: Any) -> Any:
            yield "k3yWithoutName9"
            time.sleep(30)

        seams = Seams(
            locate=bench.site,
            secrets=slow,
            identity=bench.identity,
            collectors=[Collector("git", machine.git)],
            secrets_s=0.5,
        )
        result = bundle.bundle(
            bench.console, {}, output=bench.at.folder / "o", env={}, seams=seams
        )
        text = planted.everything(Path(result.path))
        assert "k3yWithoutName9" not in text
        assert any(p.startswith("what to mask: no answer") for p in result.problems)


class TestFile:
    """The archive itself."""

    def test_shape(self, bench: Bench) -> None:
        """Only the owner reads it, and nothing in it tells who made it."""
        bench.healthy()
        result = bench.make()
        archive = Path(result.path)
        assert stat.S_IMODE(archive.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(result.summary).stat().st_mode) == 0o600
        assert Path(result.summary).name == "out.md"
        assert result.size == archive.stat().st_size
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
        names = [entry.name for entry in entries]
        assert names == sorted(names) and len(set(names)) == len(names)
        assert {(e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0, 0, "", "")}
        assert {e.mode for e in entries if e.isfile()} == {0o600}
        # neither a name nor a comment in the outer header
        assert archive.read_bytes()[3] == 0
        assert sorted(p.name for p in archive.parent.glob("*out.*")) == [
            "out.md",
            "out.tar.gz",
        ]

    def test_same_input_same_bytes(self) -> None:
        """The order of the files makes no difference."""
        one = archives.packed({"b": b"2", "a": b"1"}, "top", 1e9)
        two = archives.packed({"a": b"1", "b": b"2"}, "top", 1e9)
        assert one == two

    def test_show_writes_nothing(self, bench: Bench) -> None:
        """``--show`` lists names, sizes and what is replaced, and leaves no file."""
        bench.healthy()
        before = sorted(bench.at.folder.rglob("*"))
        result = bench.make(show=True)
        assert [p for p in sorted(bench.at.folder.rglob("*")) if p not in before] == [
            bench.at.folder / "etc",
            bench.at.folder / "etc" / "hostname",
            bench.at.folder / "etc" / "machine-id",
            bench.at.folder / "etc" / "resolv.conf",
        ]
        assert (result.path, result.summary, result.size) == (None, None, 0)
        said = bench.out.getvalue()
        assert "summary.md" in said and "KIND" in said and "wrote" not in said
        assert result.to_json()["contents"][0]["name"]

    @pytest.mark.parametrize("taken", ["out.tar.gz", "out.md"])
    def test_refuses_to_overwrite(self, bench: Bench, taken: str) -> None:
        """What is there is left as it is, and nothing is looked at first."""
        (bench.at.folder / taken).write_text("mine")
        with pytest.raises(UsageError, match="is there already"):
            bench.make()
        assert (bench.at.folder / taken).read_text() == "mine"

    @pytest.mark.parametrize(
        ("name", "why"),
        [("", "is a folder"), ("no/where.tar.gz", "there is no folder")],
    )
    def test_refuses_what_is_no_file(self, bench: Bench, name: str, why: str) -> None:
        """A folder, or a file in a folder that is not there, is a wrong --output."""
        with pytest.raises(UsageError, match=why):
            bench.make(output=bench.at.folder / name)

    @pytest.mark.parametrize(
        ("name", "summary"),
        [("a.tar.gz", "a.md"), ("a.tgz", "a.md"), ("a", "a.md"), ("a.b", "a.b.md")],
    )
    def test_names(self, tmp_path: Path, name: str, summary: str) -> None:
        """The summary is called as the archive."""
        found = archives.outputs(tmp_path / name, tmp_path, 0)
        assert found == (tmp_path / name, tmp_path / summary)

    def test_default_name(self, tmp_path: Path) -> None:
        """Without --output the name tells the time and nothing else."""
        archive, _ = archives.outputs(None, tmp_path, 0)
        assert archive.name == "rig-bundle-19700101-000000.tar.gz"

    def test_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No half file stays behind."""
        fsync = os.fsync
        calls: list[int] = []

        def full(fd: int) -> None:
            calls.append(fd)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            fsync(fd)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StepFailed, match="No space left"):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert list(tmp_path.iterdir()) == []

    def test_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C between the two files takes the first one away again."""
        link = os.link

        def stop(src: Any, dst: Any) -> None:
            if Path(dst).name == "b":
                raise KeyboardInterrupt
            link(src, dst)

        monkeypatch.setattr(os, "link", stop)
        with pytest.raises(KeyboardInterrupt):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert list(tmp_path.iterdir()) == []

    def test_race(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that appears at the last moment is not replaced either."""
        (tmp_path / "b").write_text("mine")
        with pytest.raises(UsageError):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert [p.name for p in tmp_path.iterdir()] == ["b"]
        assert (tmp_path / "b").read_text() == "mine"

    def test_no_hard_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file system without hard links gets a rename."""

        def refuse(src: Any, dst: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        archives.place({tmp_path / "a": b"1"})
        assert (tmp_path / "a").read_bytes() == b"1"
        assert len(list(tmp_path.iterdir())) == 1


def test_gzip_is_whole(tmp_path: Path) -> None:
    """Other programs can unpack it."""
    data = archives.packed({"a/b.txt": "é".encode()}, "top", 1e9)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        assert tar.getnames() == ["top", "top/a/b.txt"]
