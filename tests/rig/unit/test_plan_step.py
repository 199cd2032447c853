# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What ``plan`` finds out without changing anything."""

from __future__ import annotations

import io
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import fakemachine, fakescene
from tests.rig.support.fakescene import GXX, KIT, scene
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds import profile
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.plan import BuildPlan
from tools.rig.host.memory import Cores, Memory
from tools.rig.steps import plan as step
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.scene import Scene
from tools.rig.steps.shim import ShimResult
from tools.rig.steps.trees import LINK_PLACES, link_for

GIB = 1 << 30


class Machine:
    """A machine whose probes are fakes; what a probe writes lies in its folder."""

    def __init__(self, at: Scene, patch: pytest.MonkeyPatch) -> None:
        self.at = at
        top = at.checkout.parent
        self.kit = fakemachine.toolkit(root=top / "cuda")
        self.compiler = fakemachine.compiler(path=str(top / "g++"))
        self.kit.nvcc.parent.mkdir(parents=True)
        for program in (self.kit.nvcc, self.compiler.path):
            program.touch()
        self.pair = self.chosen()
        self.folders: list[Path] = []
        self.shim_env: dict[str, str] = {}
        held = Memory(8 * GIB, 8 * GIB, None, "", 8 * GIB)
        patch.setattr(step.toolkit, "plan", lambda *args: self.pair)
        patch.setattr(step.shim, "shim", self._shim)
        patch.setattr(step.git_safe, "git_safe", self._git)
        patch.setattr(step.memory, "read", lambda: held)
        patch.setattr(step.memory, "cores", lambda: Cores(4, None, 4))
        none = CompileCache()
        patch.setattr(step.compile_cache, "choose", lambda setting, env: none)
        patch.setattr(step, "uv_command", lambda: ["/tools/uv"])

    def chosen(self, **changes: Any) -> PairPlan:
        """Return the choice of what is here."""
        here = {"toolkit": self.kit, "compiler": self.compiler}
        passed = ("passed over CUDA 13",)
        return fakescene.chosen(**{**here, "reasons": passed, **changes})

    def _shim(
        self, console: Any, kit: Any, compiler: Any, env: Any, folder: Path
    ) -> ShimResult:
        self.folders.append(folder)
        self.shim_env = dict(env)
        flags = f"-I{folder}/glibc-1/include {env['NVCC_PREPEND_FLAGS']}"
        return ShimResult(
            True, folder, ("cospi",), {"NVCC_PREPEND_FLAGS": flags}, "clash"
        )

    def _git(
        self, console: Any, places: Any, env: Any, folder: Path, mirrors: Any
    ) -> GitSafeResult:
        self.folders.append(folder)
        added = {"XDG_CONFIG_HOME": f"{folder}/xdg-1"}
        return GitSafeResult(True, added, "trusts it", ("XDG_CONFIG_HOME",), True)

    def preview(self, **how: Any) -> BuildPlan:
        """Make the plan."""
        console = Console(io.StringIO(), {})
        return step.preview(console, self.at, wheel_only=how.get("wheel_only", False))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with a toolkit and a compiler that fit."""
    return Machine(scene(tmp_path), monkeypatch)


class TestPreview:
    """The plan that is printed."""

    def test_variables_of_the_probes(self, machine: Machine) -> None:
        """What the shim and git will add is told with the places they will have."""
        made = machine.preview()
        shims = machine.at.root.shims
        assert made.env["XDG_CONFIG_HOME"] == f"{shims}/xdg-1"
        flags = made.env["NVCC_PREPEND_FLAGS"]
        assert flags == f"-I{shims}/glibc-1/include -ccbin={machine.compiler.path}"
        assert machine.shim_env["CUDA_HOME"] == str(machine.kit.root)
        assert shims not in machine.folders

    def test_changes_nothing(self, machine: Machine) -> None:
        """What probes write lies in a folder that is gone afterwards."""
        machine.preview()
        assert len(machine.folders) == 2
        assert not list(machine.at.root.path.parent.glob("root"))
        for folder in machine.folders:
            assert folder.name.startswith("rig-plan-")
            assert folder not in list(folder.parent.iterdir())

    def test_what_is_told(self, machine: Machine) -> None:
        """Commands, jobs, toolchain and what was passed over."""
        made = machine.preview(wheel_only=True)
        assert made.mode == "wheel" and made.setup.jobs.cap <= 4
        assert made.toolchain.startswith("CUDA 12.4.131 in ")
        assert "passed over CUDA 13" in made.notes
        assert made.wheels == machine.at.root.artifacts / "{build}"
        assert made.commands[0].argv[0] == "/tools/uv"

    def test_to_be_brought(self, machine: Machine) -> None:
        """What will be brought is named with the place that it will have."""
        recipe = fakemachine.RECIPE
        machine.pair = machine.chosen(toolkit=None, compiler=None, recipe=recipe)
        made = machine.preview()
        home = machine.at.root.toolkits / recipe.folder_name
        assert made.env["CUDA_HOME"] == str(home)
        assert "NVCC_CCBIN" not in made.env
        assert any("is brought, and the glibc probe follows" in n for n in made.notes)
        assert "a g++ up to 13 is brought" in made.notes
        assert made.toolchain == (
            "CUDA 12.4 from debian trixie; host compiler g++ <= 13"
        )

    def test_compiler_to_be_brought(self, machine: Machine) -> None:
        """A toolkit that is here waits for its compiler."""
        machine.pair = machine.chosen(compiler=None)
        made = machine.preview()
        assert made.env["CUDA_HOME"] == str(machine.kit.root)
        assert len(machine.folders) == 1

    def test_no_checkout_yet(self, machine: Machine) -> None:
        """Git is not asked about a sample that is not laid out."""
        machine.at.checkout.rmdir()
        made = machine.preview()
        assert "XDG_CONFIG_HOME" not in made.env
        assert any(n.startswith("git is asked once") for n in made.notes)

    def test_cannot(self, machine: Machine) -> None:
        """Where nothing fits, the reasons are told."""
        machine.pair = machine.chosen(problem="nothing fits", hint="do")
        with pytest.raises(CannotError, match="nothing fits") as caught:
            machine.preview()
        assert caught.value.details == ("passed over CUDA 13",)
        assert caught.value.hint == "do"

    def test_refused_name(self, machine: Machine) -> None:
        """What a build would refuse is refused."""
        machine.at = replace(machine.at, checkout=Path("/a;b"))
        with pytest.raises(UsageError):
            machine.preview()

    def test_odd_names(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where nvcc is told a link, the link is named and not made."""
        odd = Path("/a b/root")
        machine.at = replace(machine.at, root=replace(machine.at.root, path=odd))
        monkeypatch.setattr(tempfile, "gettempdir", lambda: "/a b")
        made = machine.preview()
        told = link_for(odd / "shims", LINK_PLACES[0])
        assert made.env["NVCC_PREPEND_FLAGS"].startswith(f"-I{told}/glibc-1")
        assert not told.is_symlink()
        assert machine.folders[0].parent == LINK_PLACES[0]


class TestCompose:
    """Facts that are known become a plan."""

    @pytest.mark.parametrize("found", [None, "ccache", "sccache"])
    def test_cache(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch, found: str | None
    ) -> None:
        """The compile cache that is chosen is set up."""
        chosen = CompileCache(found, f"/bin/{found}") if found else CompileCache()
        monkeypatch.setattr(step.compile_cache, "choose", lambda setting, env: chosen)
        made = machine.preview()
        assert ("CCACHE_DIR" in made.env) is (found == "ccache")
        assert ("SCCACHE_DIR" in made.env) is (found == "sccache")

    def test_offline(self, machine: Machine) -> None:
        """Offline, neither uv nor git may fetch."""
        machine.at = replace(machine.at, settings=resolve({"offline": True}, {}))
        made = machine.preview()
        assert made.env["UV_OFFLINE"] == "1"
        assert made.env["GIT_ALLOW_PROTOCOL"] == "file"


class TestTorchBackend:
    """Which index torch comes from."""

    @pytest.mark.parametrize(
        ("name", "index", "backend"),
        [
            ("sample", "auto", None),
            ("v100-cu128", "auto", None),
            ("v100-cu128", "pytorch", "cu128"),
            ("v100-cu128", "default", None),
            ("a100-cu118", "auto", "cu118"),
        ],
    )
    def test_backend(
        self, tmp_path: Path, name: str, index: str, backend: str | None
    ) -> None:
        """PyTorch's own index is asked only where the ordinary one has another one."""
        at = scene(tmp_path, torch_index=index)
        at = replace(at, profile=profile.load(name))
        assert step.torch_backend(at) == backend


def test_same_words_as_the_build() -> None:
    """A pair that is here is described as the build describes it."""
    line = step.describe(fakescene.chosen())
    assert line == f"{KIT.describe()}; host compiler {GXX.describe()}"
