# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step that proves a build."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support import elf_file
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, StepFailed
from tools.rig.builds import profile as profiles
from tools.rig.builds.profile import Profile
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.host import linkage
from tools.rig.steps.verify import failure, verify

TOOL = Path("/tk/bin/cuobjdump")


@pytest.fixture(autouse=True)
def no_system_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into no folder of this machine: it may have a driver, or not."""
    monkeypatch.setattr(linkage, "_USUAL", ())


class World:
    """An environment in a folder, with a Python and a cuobjdump that answer."""

    def __init__(self, fp: FakeProcess, folder: Path) -> None:
        self.fp = fp
        self.site = folder / "venv/lib/python3.12/site-packages"
        self.site.mkdir(parents=True)
        self.python = elf_file.write(folder / "venv/bin/python", defined=["Py_New"])
        self.stream = io.StringIO()
        self.profile = dataclasses.replace(
            profiles.load("sample"),
            modules=("p",),
            libraries=("p/_C*.so|_C*.so",),
            no_device_code=("_host*",),
        )
        answer = json.dumps([[str(self.site)], [str(self.site)]])
        fp.register([str(self.python), "-I", "-c", fp.any()], stdout=answer)
        fp.register(["ldconfig", "-p"], returncode=1)

    def holds(self, path: Path | str, *sms: int) -> None:
        """Let cuobjdump list these architectures for a library."""
        lines = [f"ELF file    {n}: x.sm_{sm}.cubin" for n, sm in enumerate(sms, 1)]
        none = "cuobjdump info    : File 'x' does not contain device code"
        ptx = (
            none
            if not sms
            else "cuobjdump info : No PTX file found to extract from 'x'."
        )
        for flag, text in (
            ("--list-elf", "\n".join(lines) or none),
            ("--list-ptx", ptx),
        ):
            end = self.fp.any() if isinstance(path, str) else str(path)
            argv = [str(TOOL), flag, end]
            code = 255 if text == none else 0
            self.fp.register(argv, stdout=text, returncode=code)

    def imports(self, file: Path | str = "", **words: str) -> None:
        """Let the import of ``p`` answer."""
        said = words or {"file": str(file)}
        self.fp.register(
            [str(self.python), "-I", "-c", self.fp.any(), "p"],
            stdout="rig-import: " + json.dumps(said),
        )

    def verify(
        self, checkout: Path | None = None, wheel: Path | None = None
    ) -> VerifyReport:
        """Run the step."""
        return verify(
            Console(self.stream, {}),
            python=self.python,
            profile=self.profile,
            cuobjdump=TOOL,
            checkout=checkout,
            wheel=wheel,
            env={"PATH": "/bin"},
        )


@pytest.fixture
def world(fp: FakeProcess, tmp_path: Path) -> World:
    """Return an empty environment."""
    return World(fp, tmp_path)


def package(world: World) -> Path:
    """Install the package ``p`` without libraries."""
    init = world.site / "p/__init__.py"
    init.parent.mkdir()
    init.touch()
    return init


def test_a_good_environment(world: World) -> None:
    """Every library is listed with size, architectures and verdict."""
    init = package(world)
    library = elf_file.write(world.site / "p/_C.abi3.so", undefined=["Py_New"])
    plain = elf_file.write(world.site / "p/_host.abi3.so")
    world.holds(library, 70, 80)
    world.holds(plain)
    world.imports(init)
    report = world.verify()
    assert report.ok
    first, second = report.libraries
    assert (first.name, first.sms, first.cubins) == ("p/_C.abi3.so", (70, 80), 2)
    assert first.size == library.stat().st_size
    assert (first.links, second.verdict) == ("ok", "no device code")
    text = world.stream.getvalue()
    assert "sm_70, sm_80" in text
    assert f"+ import p {init}" in text


def test_the_missing_package_of_an_editable_install(
    world: World, tmp_path: Path
) -> None:
    """A library that was built and not installed is named with where it stayed."""
    left = elf_file.write(tmp_path / "src/fast/p/_C.abi3.so")
    world.imports(error="ModuleNotFoundError", text="No module named 'p'")
    report = world.verify(checkout=tmp_path / "src")
    assert not report.ok
    assert report.problems() == [
        f"p/_C*.so|_C*.so: is not installed, although it was built: {left}",
        "import p: ModuleNotFoundError: No module named 'p'",
    ]
    assert "x p/_C*.so|_C*.so: is not installed" in world.stream.getvalue()


def test_a_library_without_the_card(world: World) -> None:
    """Code for another card, a lost symbol and a lost file are all told."""
    init = package(world)
    library = elf_file.write(world.site / "p/_C.abi3.so", undefined=["lost"])
    record = world.site / "p-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("p/_C.abi3.so,,\np/gone.so,,\n")
    world.holds(library, 80)
    world.imports(init)
    report = world.verify()
    assert report.problems() == [
        "p/_C.abi3.so: lacks sm_70, holds sm_80",
        "p/_C.abi3.so: undefined: lost",
        "p/gone.so: is recorded as installed, and is not there",
    ]
    error = failure(report, "Nothing was installed.")
    assert isinstance(error, StepFailed)
    assert error.code == ExitCode.FAILED
    assert "Nothing was installed." in "\n".join(error.lines())
    assert error.details == tuple(report.problems())


def test_without_a_driver(world: World) -> None:
    """A library that needs the driver is not failed, and not called proved either."""
    init = package(world)
    library = elf_file.write(
        world.site / "p/_C.abi3.so", needed=["libcuda.so.1"], undefined=["cuInit"]
    )
    world.holds(library, 70)
    world.imports(init)
    report = world.verify()
    assert report.ok
    assert report.libraries[0].links == "not checkable here"
    assert "- not checkable here: p/_C.abi3.so" in world.stream.getvalue()


def test_an_import_from_elsewhere(world: World, tmp_path: Path) -> None:
    """A module that comes from another place than its libraries is not this build."""
    package(world)
    library = elf_file.write(world.site / "p/_C.abi3.so")
    world.holds(library, 70)
    world.imports(tmp_path / "other/p/__init__.py")
    report = world.verify()
    assert report.imports[0].verdict == "fail"
    assert "not from" in report.problems()[0]


def make_wheel(folder: Path, *members: str) -> Path:
    """Return a wheel with a library under each name."""
    wheel = folder / "p-1-cp310-abi3-linux_x86_64.whl"
    library = elf_file.write(folder / "x.so")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/__init__.py", "")
        for member in members:
            archive.writestr(member, library.read_bytes())
    return wheel


def test_a_wheel(world: World, tmp_path: Path) -> None:
    """A wheel's libraries are listed under the names that they will have."""
    wheel = make_wheel(tmp_path, "p-1.data/platlib/p/_C.so", "p.libs/libz.so.1")
    world.holds("any", 70)
    world.holds("any")
    report = world.verify(wheel=wheel)
    assert report.ok
    names = [(lib.name, lib.verdict, lib.links) for lib in report.libraries]
    assert names == [
        ("p/_C.so", "ok", "not checked"),
        ("p.libs/libz.so.1", "no device code", "not checked"),
    ]
    assert report.libraries[0].path == str(wheel)
    assert report.imports == ()


def test_a_wheel_without_its_libraries(world: World, tmp_path: Path) -> None:
    """What the profile expects is missed in a wheel as well."""
    report = world.verify(wheel=make_wheel(tmp_path))
    assert [lib.verdict for lib in report.libraries] == ["missing"]


def test_a_file_that_is_no_wheel(world: World, tmp_path: Path) -> None:
    """A download that broke off is an expected failure with a hint."""
    broken = tmp_path / "p.whl"
    broken.write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(StepFailed, match="cannot read") as info:
        world.verify(wheel=broken)
    assert info.value.hint == f"ls -l {broken}"


def test_the_profiles_expect_libraries() -> None:
    """Each profile names libraries, and every one of them can be judged."""
    for name in profiles.names():
        profile: Profile = profiles.load(name)
        assert profile.libraries
        assert profile.sms
