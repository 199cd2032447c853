# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Packages and wheels become a toolkit folder; apt, dpkg, tar and uv are fakes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import program
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL, read_json
from tools.rig.builds import private_apt, toolkit_kit
from tools.rig.builds.toolkit_kit import Recipe

RECIPE = Recipe(
    "debian",
    "trixie",
    "non-free",
    "12.4",
    "compiler",
    ("nvidia-cuda-toolkit",),
    ("nvidia-cuda-nvcc-cu12==12.4.131",),
    1,
)
DEB = "nvidia-cuda-toolkit_12.4_amd64.deb"
DIGEST = f"SHA256:{hashlib.sha256(b'deb').hexdigest()}"


def fill_tree(tree: Path) -> None:
    """Put what the distribution's packages hold below a folder."""
    inner = tree / "usr/lib/nvidia-cuda-toolkit"
    for name in ("bin/nvcc", "bin/cicc", "bin/crt/link.stub", "libdevice/libdev.bc"):
        program(inner / name, "real")
    for name in ("nvcc", "cicc", "ptxas", "cuobjdump"):
        program(tree / "usr/bin" / name, "script" if name in ("nvcc", "cicc") else "p")
    (tree / "usr/bin/alias").symlink_to("ptxas")
    program(tree / "usr/include/cub/cub.cuh")
    libs = tree / "usr/lib/x86_64-linux-gnu"
    program(libs / "libnvrtc.so.12.4")
    (libs / "libnvrtc.so.12").symlink_to("libnvrtc.so.12.4")
    (libs / "libgone.so").symlink_to("libgone.so.1")
    program(libs / "stubs/libcuda.so")
    program(libs / "libculibos.a")
    program(libs / "notes.txt")
    (libs / "pkgconfig").mkdir()


def fill_wheels(wheels: Path) -> None:
    """Put what the header wheels hold below a folder."""
    part = wheels / "nvidia/cuda_runtime"
    program(part / "include/cuda_runtime.h")
    program(part / "include/__init__.py")
    program(part / "lib/libcudart.so.12")
    program(wheels / "nvidia/cuda_nvcc/include/crt/host_config.h")


class Machine:
    """A machine that can bring a toolkit."""

    def __init__(self, fp: FakeProcess, tmp_path: Path) -> None:
        self.fp = fp
        self.toolkits = tmp_path / "tool kits"
        self.uv: dict[str, Any] = {}
        self.uv_env: dict[str, str] = {}
        self.uv_env: dict[str, str] = {}
        self.binutils = 0

    def register(self) -> None:
        """Let every program answer."""
        fp = self.fp
        any_ = fp.any()
        fp.register([fp.program("apt-get"), any_, "update"])
        fp.register(
            [fp.program("apt-get"), any_, "--print-uris", *RECIPE.packages],
            stdout=f"'http://m/{DEB}' {DEB} 3 {DIGEST}\n",
        )
        debs = self.toolkits / "downloads" / "trixie" / "debs"
        fp.register(
            ["/usr/lib/apt/apt-helper", any_],
            callback=lambda process: (debs / DEB).write_text("deb"),
        )
        fp.register(["dpkg-deb", "--fsys-tarfile", str(debs / DEB)])
        fp.register(["tar", any_], callback=lambda p: fill_tree(Path(p.args[5])))
        fp.register(
            ["/bin/uv", any_],
            callback=self._wheels,
            **self.uv,
        )
        fp.register(["as", any_], returncode=self.binutils, callback=self._assemble)
        fp.register(["ar", any_], callback=lambda p: Path(p.args[2]).touch())
        fp.register(["sync", any_])

    def _wheels(self, process: Any) -> None:
        self.uv_env = dict(process._FakePopen__kwargs["env"])
        fill_wheels(Path(process.args[6]))

    def _assemble(self, process: Any) -> None:
        Path(process.args[2]).touch()

    def provision(self) -> Path:
        """Bring it."""
        return toolkit_kit.provision(
            RECIPE, self.toolkits, {"A": "1"}, mirror="http://m", uv=["/bin/uv"]
        )

    def programs(self) -> list[str]:
        """Return the programs that ran."""
        return [Path(call[0]).name for call in self.fp.calls]


@pytest.fixture
def machine(
    fp: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return a machine whose signing keys are there."""
    keys = {"debian": program(tmp_path / "keys.gpg")}
    archive = private_apt.machine_archive

    def with_keys(*args: Any) -> private_apt.Archive:
        return archive(*args, etc=tmp_path, keyrings=keys)

    monkeypatch.setattr(toolkit_kit, "machine_archive", with_keys)
    return Machine(fp, tmp_path)


def test_cache(machine: Machine) -> None:
    """What uv keeps of the wheels stays below the state root."""
    machine.register()
    root = machine.provision().parent.parent
    assert machine.uv_env["UV_CACHE_DIR"] == str(root / "cache" / "uv")
    assert machine.uv_env["A"] == "1"


def test_layout(machine: Machine) -> None:
    """Everything lies where NVIDIA's own installer puts it."""
    machine.register()
    kit = machine.provision()
    assert kit == machine.toolkits / "cuda-12.4-compiler"
    assert (kit / "bin/nvcc").read_text() == "real"
    assert (kit / "nvvm/bin/cicc").read_text() == "real"
    assert (kit / "bin/ptxas").exists() and not (kit / "bin/alias").exists()
    for name in (
        "bin/crt/link.stub",
        "nvvm/libdevice/libdev.bc",
        "include/cub/cub.cuh",
        "include/cuda_runtime.h",
        "include/crt/host_config.h",
        "lib64/libcudart.so.12",
        "lib64/libnvrtc.so.12",
        "lib64/libculibos.a",
        "lib64/stubs/libcuda.so",
    ):
        assert (kit / name).is_file(), name
    assert (kit / "lib64/libcudart.so").resolve() == kit / "lib64/libcudart.so.12"
    for name in ("include/__init__.py", "lib64/libgone.so", "lib64/notes.txt"):
        assert not (kit / name).exists(), name
    assert (kit / "lib64/libcudart_static.a").read_text() == "INPUT ( -lcudart )\n"
    assert not (kit / "lib64/empty.o").exists()
    assert "TOP              = $(_HERE_)/..\n" in (
        (kit / "bin/nvcc.profile").read_text()
    )


def test_record_and_cleaning(machine: Machine) -> None:
    """What it was made of is written down; packages and work folder are gone."""
    machine.register()
    kit = machine.provision()
    assert read_json(kit / "rig-toolkit.json") == {
        "release": "12.4",
        "parts": "compiler",
        "suite": "debian trixie",
        "packages": [DEB],
        "wheels": list(RECIPE.wheels),
    }
    assert (kit / SENTINEL).is_file()
    left = sorted(p.name for p in machine.toolkits.iterdir())
    assert left == [".lock", "cuda-12.4-compiler", "downloads"]
    assert list((machine.toolkits / "downloads/trixie/debs").iterdir()) == []


def test_exact_arguments(machine: Machine, fp: FakeProcess) -> None:
    """Wheels are installed beside, without dependencies; big archives stay out."""
    machine.register()
    machine.provision()
    (uv,) = [list(c) for c in fp.calls if c[0] == "/bin/uv"]
    work = uv[6].rpartition("/")[0]
    assert uv == [
        *["/bin/uv", "pip", "install", "--quiet", "--no-deps"],
        *["--target", f"{work}/wheels", "--python", sys.executable, *RECIPE.wheels],
    ]
    (tar,) = [list(c) for c in fp.calls if c[0] == "tar"]
    data = f"{work}/tree/.{DEB}.tar"
    assert tar[:7] == ["tar", "-x", "-f", data, "-C", f"{work}/tree", "--no-same-owner"]
    assert "--exclude=*cublas*_static.a" in tar[7:]
    lib64 = f"{work}/kit/lib64"
    assert [list(c) for c in fp.calls if c[0] in ("as", "ar")] == [
        ["as", "-o", f"{lib64}/empty.o", "/dev/null"],
        ["ar", "rcs", f"{lib64}/libcudadevrt.a", f"{lib64}/empty.o"],
    ]


def test_made_once(machine: Machine) -> None:
    """A toolkit that is there is taken as it is, without starting anything."""
    machine.register()
    made = machine.provision()
    before = machine.programs()
    assert machine.provision() == made and machine.programs() == before


def test_a_damaged_one_is_made_again(machine: Machine) -> None:
    """One that lost a program is switched for a new one, and nothing is left over."""
    machine.register()
    made = machine.provision()
    (made / "bin" / "ptxas").unlink()
    assert toolkit_kit.damage(made) == "bin/ptxas is missing"
    machine.register()
    assert machine.provision() == made
    assert (made / "bin" / "ptxas").exists() and not toolkit_kit.damage(made)
    left = sorted(p.name for p in machine.toolkits.iterdir())
    assert left == [".lock", "cuda-12.4-compiler", "downloads"]


def test_a_damaged_one_stays_when_nothing_can_be_fetched(machine: Machine) -> None:
    """Without its successor the damaged one is not taken away."""
    machine.register()
    made = machine.provision()
    (made / SENTINEL).unlink()
    (made / "bin" / "ptxas").unlink()
    machine.uv = {"returncode": 2, "stderr": "error: no route to host\n"}
    machine.register()
    with pytest.raises(StepFailed, match="could not be fetched"):
        machine.provision()
    assert (made / "bin" / "nvcc").exists()


def test_made_meanwhile(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolkit that another run made while this one waited is taken as it is."""
    bench = toolkit_kit.workbench

    def slow(toolkits: Path, name: str) -> Any:
        for needed in toolkit_kit.NEEDED:
            program(toolkits / name / needed, "x")
        (toolkits / name / SENTINEL).touch()
        return bench(toolkits, name)

    monkeypatch.setattr(toolkit_kit, "workbench", slow)
    assert (machine.provision() / SENTINEL).is_file() and machine.programs() == []


def test_something_else_in_its_place(machine: Machine) -> None:
    """Somebody else's folder is refused before anything is fetched."""
    (machine.toolkits / RECIPE.folder_name).mkdir(parents=True)
    with pytest.raises(StepFailed, match="is in the way"):
        machine.provision()
    assert machine.programs() == []


def test_no_assembler(machine: Machine) -> None:
    """Without binutils the stand-in is an archive without members."""
    machine.binutils = 127
    machine.register()
    devrt = machine.provision() / "lib64/libcudadevrt.a"
    assert devrt.read_text() == "!<arch>\n" and "ar" not in machine.programs()


def test_wheels_cannot_be_fetched(machine: Machine) -> None:
    """A failing uv is quoted, and the packages stay for the next try."""
    machine.uv = {"returncode": 2, "stderr": "error: no route to host\n"}
    machine.register()
    with pytest.raises(StepFailed, match="could not be fetched") as caught:
        machine.provision()
    assert caught.value.details == ("error: no route to host",)
    assert (machine.toolkits / "downloads/trixie/debs" / DEB).exists()
    assert not (machine.toolkits / RECIPE.folder_name).exists()


def test_packages_of_another_layout(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without what is looked for is a message and not a traceback."""
    machine.register()
    monkeypatch.setattr(
        "tests.rig.unit.test_toolkit_kit.fill_tree",
        lambda tree: program(tree / "usr/bin/other"),
    )
    with pytest.raises(StepFailed, match="cannot write .*cuda-12.4-compiler"):
        machine.provision()


def test_full_toolkit_needs_no_stand_ins(machine: Machine, tmp_path: Path) -> None:
    """Real static libraries of the packages are kept, and no wheel is asked for."""
    tree, kit = tmp_path / "tree", tmp_path / "kit"
    fill_tree(tree)
    for name in ("libcudadevrt.a", "libcudart_static.a"):
        program(tree / "usr/lib/x86_64-linux-gnu" / name, "real")
    toolkit_kit._lay_out(tree, tmp_path / "none", kit)
    assert (kit / "lib64/libcudadevrt.a").read_text() == "real"
    assert (kit / "lib64/libcudart_static.a").read_text() == "real"
    assert machine.programs() == []
