# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A prebuilt wheel on the same road as a build."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import elf_file
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.builds import profile as profiles
from tools.rig.steps.install_wheel import InstallResult, install_wheel, profile_of

TOOL = Path("/tk/bin/cuobjdump")


class Bench:
    """A wheel, an environment, and a uv that unpacks."""

    def __init__(self, fp: FakeProcess, folder: Path) -> None:
        self.fp, self.folder = fp, folder
        self.python = elf_file.write(folder / "venv/bin/python")
        self.site = folder / "venv/lib/site-packages"
        self.site.mkdir(parents=True)
        self.wheel = folder / "rig_sample-1-cp310-abi3-linux_x86_64.whl"
        library = elf_file.write(folder / "x.so").read_bytes()
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name in ("__init__.py", "_C.abi3.so", "_host.abi3.so"):
                archive.writestr(f"rig_sample/{name}", library)
        self.calls: list[tuple[Any, ...]] = []
        self.unpack = True
        self.profile = dataclasses.replace(profiles.load("sample"), torch="2.10.0")
        self.asked(
            [str(self.python), "-I", "-c", fp.any()], '["cpython", 3, 12, false]'
        )
        paths = json.dumps([[str(self.site)], [str(self.site)]])
        self.asked([str(self.python), "-I", "-c", fp.any()], paths)
        fp.register(["ldconfig", "-p"], returncode=1)

    def asked(self, argv: list[Any], answer: str, code: int = 0) -> None:
        """Let a program answer once."""
        self.fp.register(argv, stdout=answer, returncode=code)

    def lists(self, sm: int) -> None:
        """Let cuobjdump list one pair of libraries."""
        none = "cuobjdump info    : File 'x' does not contain device code"
        for text, code in ((f"ELF file    1: x.sm_{sm}.cubin", 0), (none, 255)):
            self.asked([str(TOOL), "--list-elf", self.fp.any()], text, code)
            self.asked([str(TOOL), "--list-ptx", self.fp.any()], none, 255)

    def install(self, *args: Any, **words: Any) -> None:
        """Stand for uv."""
        self.calls.append(args)
        if self.unpack:
            with zipfile.ZipFile(self.wheel) as archive:
                archive.extractall(self.site)

    def run(self) -> InstallResult:
        """Run the step."""
        return install_wheel(
            Console(io.StringIO(), {}),
            self.wheel,
            python=self.python,
            profile=self.profile,
            cuobjdump=TOOL,
            uv=Path("/uv"),
            scratch=self.folder / "scratch",
            log=self.folder / "log",
            env={"PATH": "/bin"},
            torch_backend="cu128",
            install=self.install,
        )


@pytest.fixture
def bench(fp: FakeProcess, tmp_path: Path) -> Bench:
    """Return everything that a good install needs."""
    return Bench(fp, tmp_path)


def test_a_good_wheel(bench: Bench) -> None:
    """It is listed, installed with torch held, and looked at again."""
    bench.lists(70)
    bench.lists(70)
    file = str(bench.site / "rig_sample/__init__.py")
    bench.asked(
        [str(bench.python), "-I", "-c", bench.fp.any(), "rig_sample"],
        "rig-import: " + json.dumps({"file": file}),
    )
    result = bench.run()
    constraints = bench.folder / "scratch/constraints.txt"
    assert bench.calls == [
        (
            Path("/uv"),
            bench.python,
            [
                "--torch-backend",
                "cu128",
                "--constraint",
                str(constraints),
                "--reinstall-package",
                "rig-sample",
                str(bench.wheel),
            ],
        )
    ]
    assert constraints.read_text() == "torch==2.10.0\n"
    data = json.loads(json.dumps(result.to_json()))
    assert data["before"]["ok"]
    assert data["after"]["ok"]
    assert (data["project"], data["version"]) == ("rig-sample", "1")


def test_a_wheel_for_another_card(bench: Bench) -> None:
    """Nothing is installed when the wheel's own libraries lack the card."""
    bench.lists(80)
    with pytest.raises(StepFailed) as info:
        bench.run()
    assert "Nothing was installed." in info.value.usual
    assert bench.calls == []


def test_a_damaged_wheel(bench: Bench) -> None:
    """A file that was damaged on its way is told as one, whatever Python says of it."""
    with zipfile.ZipFile(bench.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rig_sample/_C.abi3.so", bytes(range(256)) * 100)
    whole = bytearray(bench.wheel.read_bytes())
    whole[60:90] = b"\xff" * 30
    bench.wheel.write_bytes(whole)
    with pytest.raises(StepFailed, match=r"cannot read .*\.whl") as caught:
        bench.run()
    assert "cut short" in caught.value.usual and bench.calls == []


def test_an_install_that_left_something_out(bench: Bench) -> None:
    """A good wheel whose install is not complete fails after all."""
    bench.lists(70)
    bench.unpack = False
    bench.asked(
        [str(bench.python), "-I", "-c", bench.fp.any(), "rig_sample"],
        'rig-import: {"error": "ModuleNotFoundError", "text": "none"}',
    )
    with pytest.raises(StepFailed, match="does not hold what profile sample asks for"):
        bench.run()
    assert len(bench.calls) == 1


def test_a_wheel_for_another_python(bench: Bench) -> None:
    """The name is checked before anything is unpacked."""
    renamed = bench.wheel.with_name("rig_sample-1-cp39-cp39-linux_x86_64.whl")
    bench.wheel = bench.wheel.rename(renamed)
    with pytest.raises(CannotError, match="another Python"):
        bench.run()
    assert bench.calls == []


def test_a_wheel_of_another_project(bench: Bench) -> None:
    """The profile in force must be the wheel's."""
    bench.wheel = bench.wheel.rename(bench.wheel.with_name("torch-2-py3-none-any.whl"))
    with pytest.raises(UsageError, match="is a wheel of torch"):
        bench.run()


class TestProfileOf:
    """Choosing the profile by the wheel's name."""

    def test_by_name(self, bench: Bench) -> None:
        """The project in the name decides."""
        assert profile_of(bench.wheel).name == "sample"
        assert profile_of(bench.wheel, "sample").name == "sample"

    def test_unknown_project(self, tmp_path: Path) -> None:
        """A wheel that no profile is for lists those that there are."""
        wheel = tmp_path / "torch-2-py3-none-any.whl"
        wheel.touch()
        with pytest.raises(UsageError, match="is a wheel of torch") as info:
            profile_of(wheel)
        assert "sample is for rig-sample" in info.value.usual

    def test_the_wrong_profile(self, bench: Bench) -> None:
        """A profile that was asked for is not silently replaced."""
        with pytest.raises(UsageError) as info:
            profile_of(bench.wheel, "v100-cu128")
        assert info.value.usual == "Profile v100-cu128 is for 1cat-vllm."
