# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A planted machine of which bundles are made, and what is in them."""

from __future__ import annotations

import functools
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakenvml
from tests.rig.support.fakeproc import FakeProc
from tests.rig.support.planted import Planted
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.builds import profile
from tools.rig.host import credentials, gpu
from tools.rig.host import identity as identities
from tools.rig.steps import bundle
from tools.rig.steps.bundle import COLLECTORS, Seams
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
