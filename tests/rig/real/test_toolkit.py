# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Real toolkits and compilers, brought from the distribution's archive."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.nobody import NOBODY, as_nobody, needs_root
from tests.rig.support.toolkit import (
    cache_folder,
    fitting_compiler,
    needs_packages,
    sm70_toolkit,
)
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import (
    compiler_kit,
    inventory,
    pair,
    private_apt,
    profile,
    workbench,
)
from tools.rig.builds.private_apt import PrivateApt
from tools.rig.host import compilers, cuda, nvcc_flags, system
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.steps import nvcc_flags as flags_step
from tools.rig.steps import proof
from tools.rig.steps import toolkit as step
from tools.rig.steps.trees import LINK_PLACES, link_for

pytestmark = pytest.mark.real

CLEAN = {
    k: v
    for k, v in os.environ.items()
    if not k.startswith(("NVCC_", "CUDA", "ONECAT_")) and k not in ("CXX", "CC")
}
SAMPLE = profile.load("sample")
VOLTA = replace(SAMPLE, name="volta", toolkit_min="12.0", sms=(70,), cxx=20)
AMPERE = profile.on_sample(profile.load("a100-cu118"))


@pytest.mark.parametrize("name", nvcc_flags.VARIABLES)
def test_flags_of_the_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real nvcc answers whatever the user gave it, and says what it does not know."""
    found = sm70_toolkit()
    monkeypatch.setenv(name, "--bogus")
    assert not cuda.probe(found.root, "PATH").problem
    with pytest.raises(UsageError, match=f"{name}=--bogus: nvcc does not know it"):
        flags_step.check(found, {**CLEAN, name: "--bogus"})
    for good in ("-lineinfo -I/none", "-Xcompiler -Wall"):
        flags_step.check(found, {**CLEAN, name: good})


PROGRAM = """\
#include <cstdio>
__global__ void twice(float *p) { p[threadIdx.x] *= 2; }
int main() { twice<<<1, 1>>>(nullptr); std::printf("done\\n"); }
"""
HOST = """\
#include <stdexcept>
#include <string>
extern "C" int caught() {
  try { throw std::runtime_error(std::string("x")); }
  catch (const std::exception &e) { return e.what()[0]; }
}
"""


def prove(
    toolkit: Toolkit,
    compiler: HostCompiler,
    wanted: profile.Profile,
    root: Path,
    env: dict[str, str] | None = None,
) -> step.Pair:
    """Prove a pair, messages thrown away."""
    silent = Console(io.StringIO(), {})
    return step.prove(silent, toolkit, compiler, wanted, StateRoot(root), env or CLEAN)


@pytest.fixture(scope="module")
def gxx11(tmp_path_factory: pytest.TempPathFactory) -> HostCompiler:
    """Return a g++ <= 11 that was brought into an empty folder."""
    needs_packages()
    if not any(c.family == "gcc" for c in compilers.find(CLEAN)):
        pytest.skip("a brought g++ needs the parts of an installed one")
    try:
        return compiler_kit.bring(11, tmp_path_factory.mktemp("toolkits"), CLEAN)
    except CannotError as exc:
        pytest.skip(f"no g++ up to 11 in this archive: {exc.what}")


class TestPairs:
    """The pairs of both profiles."""

    def test_volta(self, tmp_path: Path) -> None:
        """CUDA 12.4 compiles C++20 for sm_70 with a compiler that it takes."""
        toolkit = sm70_toolkit("12.4")
        made = prove(toolkit, fitting_compiler("12.4", 20), VOLTA, tmp_path)
        assert made.toolkit.release == "12.4" and made.toolkit.can(70)

    def test_ampere_with_a_brought_compiler(
        self, tmp_path: Path, gxx11: HostCompiler
    ) -> None:
        """CUDA 11.8 compiles for sm_80 with a g++ that was brought for it."""
        made = prove(sm70_toolkit("11.8"), gxx11, AMPERE, tmp_path)
        assert made.compiler.major is not None and made.compiler.major <= 11
        assert f"-ccbin={gxx11.path}" in made.env["NVCC_PREPEND_FLAGS"]

    def test_118_refuses_a_newer_compiler(self, tmp_path: Path) -> None:
        """The table says so, and so does nvcc itself."""
        newer = [
            c
            for c in compilers.find(CLEAN)
            if c.family == "gcc" and c.major is not None and c.major > 11
        ]
        if not newer:
            pytest.skip("no g++ above 11 is installed here")
        assert compilers.refusal("11.8", newer[0], 17)
        with pytest.raises(StepFailed) as caught:
            prove(sm70_toolkit("11.8"), newer[0], AMPERE, tmp_path)
        assert any("unsupported GNU version" in d for d in caught.value.details)

    def test_one_toolkit_compiles_for_both(self, tmp_path: Path) -> None:
        """A profile of two cards is proved for each of them."""
        both = replace(VOLTA, sms=(70, 80))
        made = prove(sm70_toolkit("12.4"), fitting_compiler("12.4", 20), both, tmp_path)
        assert made.toolkit.can(80)


class TestDamaged:
    """Something of a brought pair is lost or another."""

    @pytest.fixture
    def kit(self, tmp_path: Path) -> Path:
        """Return a copy of a brought toolkit; its files share their content."""
        made = tmp_path / "cuda"
        shutil.copytree(
            sm70_toolkit("12.4").root, made, symlinks=True, copy_function=os.link
        )
        (made / SENTINEL).touch()
        (made / inventory.LIST).unlink(missing_ok=True)
        inventory.seal(made)
        return made

    @pytest.mark.parametrize(
        "name", ["bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime.h"]
    )
    def test_noticed_before_and_blamed_afterwards(
        self, tmp_path: Path, kit: Path, name: str
    ) -> None:
        """It is passed over when chosen; a compile with it ends in the command."""
        assert not pair.toolkit_refusal(cuda.probe(kit, "provisioned"), VOLTA)
        (kit / name).unlink()
        seen = cuda.probe(kit, "provisioned")
        assert pair.toolkit_refusal(seen, VOLTA) == f"it is damaged: {name} is missing"
        with pytest.raises(CannotError, match="is missing") as caught:
            prove(seen, fitting_compiler("12.4", 20), VOLTA, tmp_path / "state")
        assert caught.value.hint == f"rm -r {kit}"

    def test_compiler_is_brought_again(self, gxx11: HostCompiler) -> None:
        """A g++ without its compiler proper is switched for a whole one."""
        folder = compiler_kit.folder_of(gxx11)
        (proper,) = folder.rglob("cc1plus")
        proper.unlink()
        (seen,) = compiler_kit.brought(folder.parent)
        assert "cc1plus is missing" in seen.problem
        assert compiler_kit.bring(11, folder.parent, CLEAN) == gxx11
        assert proper.exists() and not inventory.damage(folder, deep=True)


class TestNewestNvccAlone:
    """CUDA 13 on the machine."""

    def test_passed_over_with_a_reason(self) -> None:
        """It is found, and a recipe or another toolkit takes its place."""
        found = cuda.find(os.environ)
        too_new = [t for t in found if not t.problem and not t.can(70)]
        if not too_new:
            pytest.skip("no toolkit without sm_70 is installed here")
        for toolkit in too_new:
            why = pair.toolkit_refusal(toolkit, VOLTA)
            assert f"CUDA {toolkit.release} cannot compile for sm_70" in why
        settings = resolve({}, CLEAN)
        plan = step.plan(settings, VOLTA, StateRoot(cache_folder()), CLEAN)
        assert any("cannot compile for sm_70" in reason for reason in plan.reasons)
        assert plan.problem or plan.recipe or (plan.toolkit and plan.toolkit.can(70))

    def test_its_nvcc_says_so_too(self, tmp_path: Path) -> None:
        """What the list of architectures says is what the compiler does."""
        too_new = [t for t in cuda.find(os.environ) if not t.problem and not t.can(70)]
        if not too_new:
            pytest.skip("no toolkit without sm_70 is installed here")
        (tmp_path / "k.cu").write_text(proof.KERNEL)
        answer = subprocess.run(
            [too_new[0].nvcc, "-arch=sm_70", "-cubin", "k.cu"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=CLEAN,
        )
        assert answer.returncode and "sm_70" in answer.stdout + answer.stderr


class TestPaths:
    """Toolkits and compilers below folders with odd names."""

    @pytest.mark.parametrize("name", ["it's ü", 'a "b" $x`\\'])
    def test_toolkit(self, tmp_path: Path, name: str) -> None:
        """Blanks and other letters are no matter; for shell signs a link stands in."""
        place = tmp_path / name / "cuda"
        place.parent.mkdir()
        place.symlink_to(sm70_toolkit("12.4").root)
        toolkit = cuda.probe(place, "CUDA_HOME")
        host = fitting_compiler("12.4", 20)
        try:
            made = prove(toolkit, host, VOLTA, tmp_path / "state")
            kept = not set(name) & set('"$`\\')
            assert (made.env["CUDA_HOME"] == str(place)) == kept
        finally:
            remove_link(place)

    def test_compiler(self, tmp_path: Path, gxx11: HostCompiler) -> None:
        """A compiler below a blank is told to nvcc by a link without one."""
        place = tmp_path / "a b"
        place.symlink_to(gxx11.path.parent)
        host = compilers.probe(place / gxx11.path.name)
        try:
            made = prove(sm70_toolkit("11.8"), host, AMPERE, tmp_path / "state")
            assert " " not in made.env["NVCC_PREPEND_FLAGS"]
        finally:
            remove_link(place)


class TestLinking:
    """What is built can be linked and loaded."""

    def test_quiet(self, tmp_path: Path) -> None:
        """The stand-ins for static archives link, and nothing is warned about."""
        toolkit = sm70_toolkit("12.4")
        made = prove(toolkit, fitting_compiler("12.4", 20), VOLTA, tmp_path / "state")
        (tmp_path / "k.cu").write_text(PROGRAM)
        for more in (["-cudart", "shared"], ["-rdc=true"]):
            answer = subprocess.run(
                [toolkit.nvcc, "-arch=sm_70", *more, "k.cu", "-o", "k"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                env={**CLEAN, **made.env},
            )
            assert answer.returncode == 0 and answer.stderr == "", answer.stderr

    def test_brought_compiler_uses_the_systems_library(
        self, tmp_path: Path, gxx11: HostCompiler
    ) -> None:
        """An extension made by it shares the C++ library of the process."""
        (tmp_path / "x.cpp").write_text(HOST)
        subprocess.run(
            [gxx11.path, "-shared", "-fPIC", "x.cpp", "-o", "x.so"],
            cwd=tmp_path,
            check=True,
        )
        code = "import ctypes; print(ctypes.CDLL('./x.so').caught());"
        code += "print('libstdc++.so' in open('/proc/self/maps').read())"
        said = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.split() == [str(ord("x")), "True"]


class TestPrivateApt:
    """apt below a folder of ours."""

    def archive(self) -> private_apt.Archive:
        """Return the smallest part of the machine's own archive."""
        needs_packages()
        here = system.distribution()
        owner = private_apt.archive_owner(here)
        found = private_apt.machine_archive(owner, here.codename, "contrib")
        small = "contrib" if owner == "debian" else "universe"
        return replace(found, components=(small,))

    def test_odd_folder(self, tmp_path: Path) -> None:
        """Blanks, quotes and other letters in the folder's name are no matter."""
        apt = PrivateApt(tmp_path / 'a "b" ü\'$', [self.archive()], CLEAN)
        apt.update()
        assert not apt.known("surely-no-package-of-that-name")
        assert list((apt.folder / "state" / "lists").glob("*Release"))

    def test_ordinary_user(self) -> None:
        """No right is needed that an ordinary user lacks."""
        needs_root()
        archive = self.archive()
        # not below tmp_path, which only its owner may enter
        with tempfile.TemporaryDirectory() as name:
            os.chown(name, NOBODY, NOBODY)

            def work() -> bool:
                apt = PrivateApt(Path(name, "apt"), [archive], {**CLEAN, "HOME": name})
                apt.update()
                return apt.known("surely-no-package-of-that-name")

            assert as_nobody(work) is False

    def test_key_that_does_not_fit(self, tmp_path: Path) -> None:
        """An archive that another key signed is refused."""
        (tmp_path / "none.gpg").touch()
        archive = replace(self.archive(), keyrings=(tmp_path / "none.gpg",))
        apt = PrivateApt(tmp_path / "apt", [archive], CLEAN)
        with pytest.raises(StepFailed, match="reading the package lists failed"):
            apt.update()


class TestKilled:
    """A run that was killed in the middle."""

    def test_leftovers_go(self, tmp_path: Path) -> None:
        """The lock is free at once, and the next run takes the half away."""
        code = (
            "import sys, time; from pathlib import Path\n"
            "from tools.rig.builds.workbench import workbench\n"
            "with workbench(Path(sys.argv[1]), 'cuda-12.4') as work:\n"
            "    (work / 'tree').mkdir()\n"
            "    print('ready', flush=True)\n"
            "    time.sleep(600)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(signal.SIGKILL)
        left = tmp_path / f".cuda-12.4.{child.pid}"
        assert (left / SENTINEL).is_file()
        with workbench.workbench(tmp_path, "cuda-12.4", wait_s=5):
            assert not left.exists()


def remove_link(place: Path) -> None:
    """Take the link away that a path without odd letters was given by."""
    for folder in LINK_PLACES:
        link_for(place, folder).unlink(missing_ok=True)
