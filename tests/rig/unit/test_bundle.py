# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A bundle comes out whatever is broken, is whole or absent, and holds no secret."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import planted
from tests.rig.support.bundle_bench import CARD, COMMIT, GIT, HEAVY, Bench, members
from tests.rig.support.bundle_bench import bench as bench
from tools.rig.host import gpu
from tools.rig.steps import bundle
from tools.rig.steps.bundle import COLLECTORS, Seams
from tools.rig.steps.bundling import machine
from tools.rig.steps.bundling.site import Collector, Part, Site


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
