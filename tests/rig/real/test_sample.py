# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The sample target with a real git and a real compiler, verified after each build."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import bench as benches
from tests.rig.support.bench import Bench
from tests.rig.support.toolkit import sm70_toolkit
from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.builds import profile as profiles
from tools.rig.builds import sample
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.host import cubins
from tools.rig.steps.install_wheel import install_wheel
from tools.rig.steps.verify import verify

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a laid-out sample, in a folder that is no easy name."""
    folder = tmp_path_factory.mktemp("bench") / "it's 样本"
    folder.mkdir()
    return benches.make(folder, sm70_toolkit())


@pytest.fixture(scope="module")
def wheel(bench: Bench) -> Path:
    """Return the sample's wheel for sm_70."""
    return bench.wheel("7.0", "wheels")


@pytest.fixture
def installed(bench: Bench, wheel: Path) -> Iterator[Path]:
    """Install the wheel; return the folder of the package."""
    argv = [benches.uv(), "pip", "install", "-q", "--python", bench.python]
    run.run([*argv, "--no-deps", "--reinstall", wheel], cwd="/", check=True)
    (package,) = (bench.folder / "venv/lib").glob("python3*/site-packages/rig_sample")
    yield package
    argv[2] = "uninstall"
    run.run([*argv, "rig-sample"], cwd="/", check=True)
    shutil.rmtree(package, ignore_errors=True)


@pytest.fixture(scope="module")
def editable(bench: Bench) -> Path:
    """Build in place for another card, with PTX; return the library."""
    bench.editable("8.0+PTX")
    return bench.checkout.path / "rig_sample/_C.abi3.so"


def look(bench: Bench, *sms: int, extra: str = "") -> VerifyReport:
    """Verify the environment."""
    profile = profiles.load("sample")
    libraries = (*profile.libraries, *([extra] if extra else []))
    return verify(
        Console(io.StringIO(), {}),
        python=bench.python,
        profile=dataclasses.replace(profile, sms=sms or (70,), libraries=libraries),
        cuobjdump=bench.toolkit.cuobjdump,
        checkout=bench.checkout.path,
    )


def shared(folder: Path, name: str, code: str, *flags: str) -> Path:
    """Compile a small library that replaces one of the sample's."""
    source = folder / f"{name}.cpp"
    source.write_text(code)
    made = folder / f"{name}.so"
    run.run(["g++", "-shared", "-fPIC", "-o", made, source, *flags], check=True)
    return made


class TestBuilt:
    """A wheel, installed."""

    def test_the_wheel_is_good(self, bench: Bench, installed: Path) -> None:
        """Machine code for the card, nothing missing, and it says what it is."""
        report = look(bench)
        assert report.ok, report.problems()
        names = {lib.name: (lib.sms, lib.ptx) for lib in report.libraries}
        assert names["rig_sample/_C.abi3.so"] == ((70,), ())
        assert names["rig_sample/_host.abi3.so"] == ((), ())
        ask = (
            "import rig_sample; i = rig_sample.info(); print(i['arch_list'], i['nvcc'])"
        )
        said = run.run([bench.python, "-I", "-c", ask], cwd="/", check=True)
        assert said.out.split() == ["7.0", bench.toolkit.version]

    def test_the_kernels_run_or_say_why_not(
        self, bench: Bench, installed: Path
    ) -> None:
        """No wrong number passes for a result: either proof, or the driver's error."""
        ask = (
            "import rig_sample\n"
            "try: print('checked', rig_sample.run()['checked'])\n"
            "except RuntimeError as exc: print('refused', exc)\n"
        )
        said = run.run([bench.python, "-I", "-c", ask], cwd="/", check=True).out
        assert said.startswith(("checked ", "refused ")), said
        assert "cudaError" in said or int(said.split()[1]) > 1000

    def test_a_missing_library(self, bench: Bench, installed: Path) -> None:
        """A library that the profile expects and nobody installed fails by its name."""
        report = look(bench, extra="flash/_C*.so|flash_C*.so")
        assert report.problems() == ["flash/_C*.so|flash_C*.so: is not installed"]

    def test_a_deleted_library(self, bench: Bench, installed: Path) -> None:
        """A recorded file that is gone fails the list and the import."""
        (installed / "_C.abi3.so").unlink()
        report = look(bench)
        assert any("is not there" in line for line in report.problems())
        assert any(line.startswith("import rig_sample") for line in report.problems())

    def test_a_library_cut_short(self, bench: Bench, installed: Path) -> None:
        """A copy that broke off is found although cuobjdump would let it pass."""
        library = installed / "_C.abi3.so"
        data = library.read_bytes()
        library.unlink()
        library.write_bytes(data[: len(data) // 2])
        report = look(bench)
        assert report.libraries[0].verdict == "unknown"
        assert "cut short" in report.problems()[0]

    def test_an_undefined_symbol(
        self, bench: Bench, installed: Path, tmp_path: Path
    ) -> None:
        """A symbol that nobody defines is told by name, as the loader would."""
        code = 'extern "C" int lost_one(); int f() { return lost_one(); }'
        library = installed / "_host.abi3.so"
        library.unlink()
        shutil.copy(shared(tmp_path, "host", code), library)
        report = look(bench)
        assert "rig_sample/_host.abi3.so: undefined: lost_one" in report.problems()

    def test_a_library_that_needs_the_driver(
        self, bench: Bench, installed: Path, tmp_path: Path
    ) -> None:
        """Without a driver its other symbols are checked, and it is not failed."""
        stub = 'extern "C" int cuInit(unsigned) { return 0; }'
        driver = shared(tmp_path, "cuda", stub, "-Wl,-soname,libcuda.so.1")
        code = 'extern "C" int cuInit(unsigned); int f() { return cuInit(0); }'
        need = shared(tmp_path, "need", code, str(driver))
        shutil.copy(need, installed / "_host_extra.abi3.so")
        report = look(bench)
        (found,) = [li for li in report.libraries if "extra" in li.name]
        assert found.ok
        assert found.links in ("not checkable here", "ok")
        said = run.run(["ldconfig", "-p"], env={"PATH": "/sbin:/usr/sbin:/bin"}).out
        assert (found.links == "ok") == ("libcuda.so.1" in said)

    def test_the_checkout_does_not_stand_in(self, bench: Bench, wheel: Path) -> None:
        """A checkout in the current folder or on PYTHONPATH is no install."""
        env = {**os.environ, "PYTHONPATH": str(bench.checkout.path)}
        report = verify(
            Console(io.StringIO(), {}),
            python=bench.python,
            profile=profiles.load("sample"),
            cuobjdump=bench.toolkit.cuobjdump,
            checkout=bench.checkout.path,
            env=env,
        )
        assert not report.ok
        assert any("No module named" in line for line in report.problems())


class TestEditable:
    """The checkout itself, installed in place."""

    def test_architectures_and_ptx(self, bench: Bench, editable: Path) -> None:
        """The switch +PTX adds PTX, and the wrong card is found through the finder."""
        content = cubins.read(editable, bench.toolkit.cuobjdump)
        assert (content.sass, content.ptx) == ((80,), (80,))
        report = look(bench, 80)
        assert report.ok, report.problems()
        assert (
            "rig_sample/_C.abi3.so: lacks sm_70, holds sm_80" in look(bench).problems()
        )

    def test_precompiled(self, bench: Bench, editable: Path, wheel: Path) -> None:
        """Libraries come out of a wheel, as new files: a reader keeps the old one."""
        with editable.open("rb") as held:
            bench.editable(
                "7.0",
                SAMPLE_USE_PRECOMPILED="1",
                SAMPLE_PRECOMPILED_WHEEL_LOCATION=str(wheel),
            )
            assert os.fstat(held.fileno()).st_nlink == 0
        with zipfile.ZipFile(wheel) as archive:
            assert editable.read_bytes() == archive.read("rig_sample/_C.abi3.so")
        report = look(bench)
        assert report.ok, report.problems()


class TestInstallWheel:
    """A wheel on the road of a download."""

    def test_into_an_empty_environment(
        self, bench: Bench, wheel: Path, tmp_path: Path
    ) -> None:
        """It is installed with what it needs at run time, and verified."""
        python = benches.venv(tmp_path / "venv", Path(sys.executable).resolve())
        result = install_wheel(
            Console(io.StringIO(), {}),
            wheel,
            python=python,
            profile=profiles.load("sample"),
            cuobjdump=bench.toolkit.cuobjdump,
            uv=benches.uv(),
            scratch=tmp_path,
            log=tmp_path / "log",
        )
        assert result.after.ok
        assert [i.verdict for i in result.after.imports] == ["ok"]

    def test_a_wheel_for_another_card(
        self, bench: Bench, wheel: Path, tmp_path: Path
    ) -> None:
        """Nothing is installed."""
        python = benches.venv(tmp_path / "venv", Path(sys.executable).resolve())
        with pytest.raises(StepFailed) as info:
            install_wheel(
                Console(io.StringIO(), {}),
                wheel,
                python=python,
                profile=dataclasses.replace(profiles.load("sample"), sms=(80,)),
                cuobjdump=bench.toolkit.cuobjdump,
                uv=benches.uv(),
                scratch=tmp_path,
                log=tmp_path / "log",
            )
        assert "rig_sample/_C.abi3.so: lacks sm_80, holds sm_70" in info.value.details
        assert not list((tmp_path / "venv").glob("lib/python3*/site-packages/rig_*"))


class TestLayOut:
    """The layout with a real git."""

    def git(self, path: Path, *args: str) -> str:
        """Run git as its owner would, whoever that is."""
        argv = ["git", "-C", str(path), "-c", "safe.directory=*", *args]
        return run.run(argv, check=True).out.strip()

    def test_history(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same templates give the same commit; changed ones a second commit."""
        one = sample.lay_out(tmp_path / "one", os.environ)
        two = sample.lay_out(tmp_path / "two", os.environ)
        head = self.git(one.path, "rev-parse", "HEAD")
        assert head == self.git(two.path, "rev-parse", "HEAD")
        assert self.git(one.path, "describe") == "v0.1.0"
        assert self.git(one.path, "status", "--porcelain") == ""
        assert self.git(one.dependency, "tag") == "v1.0.0"
        templates = shutil.copytree(sample.TEMPLATES, tmp_path / "templates")
        (templates / "project/csrc/host.cpp").unlink()
        (templates / "project/new.txt").write_text("new\n")
        monkeypatch.setattr(sample, "TEMPLATES", templates)
        assert sample.lay_out(tmp_path / "one", os.environ) == one
        assert self.git(one.path, "rev-parse", "HEAD^") == head
        assert not (one.path / "csrc/host.cpp").exists()
        assert self.git(one.path, "describe").startswith("v0.1.0-1-g")

    def test_the_users_git_configuration(self, tmp_path: Path) -> None:
        """Signing, hooks and a missing identity of the user do not reach it."""
        home = tmp_path / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(
            "[commit]\n\tgpgSign = true\n[core]\n\thooksPath = /none\n"
            "\tautocrlf = true\n[user]\n\tuseConfigOnly = true\n"
        )
        before = sorted(p.name for p in home.iterdir())
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_DIR": "/none"}
        made = sample.lay_out(tmp_path / "lay", env)
        assert self.git(made.path, "log", "--format=%an") == "rig sample"
        assert sorted(p.name for p in home.iterdir()) == before

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_owned_by_another_user(self, tmp_path: Path) -> None:
        """A layout that belongs to someone else is reused, and mended when needed."""
        made = sample.lay_out(tmp_path / "lay", os.environ)
        for path in [made.dependency, *made.dependency.rglob("*"), made.path]:
            os.chown(path, 65534, 65534)
        for path in made.path.rglob("*"):
            os.chown(path, 65534, 65534)
        assert sample.lay_out(tmp_path / "lay", os.environ) == made
        (made.path / "setup.py").unlink()
        assert sample.lay_out(tmp_path / "lay", os.environ) == made
        assert (made.path / "setup.py").is_file()
