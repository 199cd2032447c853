# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``cuda-toolkit``: what is looked at, brought and proved; every program is a fake."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import compiler, gxx, nvcc, program, toolkit
from tools.rig.base.config import Settings, resolve
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.builds import inventory, profile
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.toolkit_kit import recipes
from tools.rig.host import cubins
from tools.rig.host.system import Distribution
from tools.rig.steps import proof
from tools.rig.steps import toolkit as step
from tools.rig.steps.shim import ShimResult

V100 = replace(profile.load("v100-cu128"), toolkit_parts="compiler")
RECIPE = recipes("debian", "compiler")[0]
NO_SHIM = ShimResult(False, None, (), {}, "not needed")
OFFLINE = resolve({"offline": True}, {})


class Machine:
    """A Debian machine whose toolkits and compilers lie below a folder."""

    def __init__(
        self, fp: FakeProcess, tmp_path: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.fp, self.tmp, self.patch = fp, tmp_path, patch
        self.root = StateRoot(tmp_path / "state")
        self.said = io.StringIO()
        self.env = {"PATH": str(tmp_path / "bin")}
        self.shim = NO_SHIM
        self.shim_env: dict[str, str] = {}
        self.content = cubins.Content((70,), 1)
        self.offered: int | None = None
        find = step.cuda.find
        here = Distribution("debian", "13", "Debian 13", "trixie")
        patch.setattr(
            step.cuda,
            "find",
            lambda env, made: find(env, made, system=tmp_path / "none"),
        )
        patch.setattr(step, "have_dpkg", lambda: True)
        patch.setattr(step.compiler_kit, "offered", lambda newest, here: self.offered)
        patch.setattr(step.system, "distribution", lambda: here)
        patch.setattr(step, "shim", self._shim)
        patch.setattr(proof, "read_cubins", lambda made, tool: self.content)
        called = step.called
        patch.setattr(
            step,
            "called",
            lambda kit, host: called(
                kit, host, lambda path: tmp_path / "links" / path.name
            ),
        )
        patch.setattr(step, "uv_command", lambda: ["/bin/uv"])

    def _shim(self, *args: Any) -> ShimResult:
        self.shim_env = args[3]
        return self.shim

    def plan(self, settings: Settings | None = None, **env: str) -> PairPlan:
        """Plan for the V100."""
        self.env.update(env)
        return step.plan(settings or resolve({}, {}), V100, self.root, self.env)

    def act(self, plan: PairPlan) -> step.Pair:
        """Do what the plan says."""
        console = Console(self.said, {})
        settings = resolve({}, {})
        return step.act(console, plan, settings, V100, self.root, self.env)

    def compiles(self, root: Path, code: int = 0, err: str = "") -> None:
        """Let nvcc compile the proof."""
        argv = [str(root / "bin" / "nvcc"), "-arch=sm_70", "-std=c++20", "-c"]
        self.fp.register(
            [*argv, self.fp.any(min=3, max=3)], returncode=code, stderr=err
        )


@pytest.fixture
def machine(
    fp: FakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return the machine."""
    return Machine(fp, tmp_path, monkeypatch)


class TestPlan:
    """What will be used, without changing anything."""

    def test_a_pair_that_is_here(self, machine: Machine) -> None:
        """CUDA_HOME and the g++ on PATH."""
        home = nvcc(machine.fp, machine.tmp / "cuda")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        found = machine.plan(CUDA_HOME=str(home))
        assert found.toolkit is not None and found.toolkit.root == home
        assert found.compiler is not None and found.compiler.major == 12
        assert not (machine.tmp / "state").exists()

    def test_what_was_brought_counts(self, machine: Machine) -> None:
        """Toolkits and compilers of earlier runs are used again."""
        made = nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        old = gxx(machine.fp, machine.root.toolkits / "gcc-13/usr/bin/g++-13", "13 3")
        (machine.root.toolkits / "gcc-13" / ".rig-made").touch()
        found = machine.plan()
        assert found.toolkit is not None and found.toolkit.root == made
        assert found.compiler is not None and found.compiler.path == old

    def test_recipe(self, machine: Machine) -> None:
        """CUDA 13 alone is passed over, and the newest recipe is taken."""
        home = nvcc(machine.fp, machine.tmp / "cuda", "13.0")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        machine.env["PATH"] += f":{home}/bin"
        found = machine.plan()
        assert found.recipe == RECIPE and "cannot compile for sm_70" in found.reasons[0]

    def test_without_a_root(self, machine: Machine) -> None:
        """Before a root is chosen nothing of ours is looked for."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        found = step.plan(resolve({}, {}), V100, None, machine.env)
        assert found.recipe == RECIPE and found.compiler is None

    def test_no_compiler_to_stand_on(self, machine: Machine) -> None:
        """Plan and act say alike that none can be brought, with a package that is."""
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        machine.offered = 12
        found = machine.plan()
        assert found.problem.endswith("takes the parts of an installed g++")
        assert found.hint == "sudo apt-get install g++-12"
        with pytest.raises(CannotError) as caught:
            machine.act(found)
        assert caught.value.hint == found.hint

    def test_a_damaged_toolkit(self, machine: Machine) -> None:
        """One that lost a part is passed over, and brought again."""
        home = nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        header = program(home / "include" / "cuda_runtime.h", "x")
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        inventory.seal(home)
        assert machine.plan().toolkit is not None
        header.write_text("")
        found = machine.plan()
        assert found.recipe == RECIPE
        assert "is damaged: include/cuda_runtime.h has 0 of 1 bytes" in found.reasons[0]

    def test_a_damaged_compiler(self, machine: Machine) -> None:
        """One that lost a part is passed over, and brought again."""
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        folder = machine.root.toolkits / "gcc-13"
        gxx(machine.fp, folder / "usr/bin/g++-13", "13 3")
        part = program(folder / "usr/lib/cc1plus", "x")
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        inventory.seal(folder)
        assert machine.plan().compiler is not None
        part.chmod(0o644)
        found = machine.plan()
        assert (found.compiler, found.problem) == (None, "")
        assert "usr/lib/cc1plus is not executable" in found.reasons[-1]

    def test_offline(self, machine: Machine) -> None:
        """Offline nothing is brought, neither toolkit nor compiler."""
        found = machine.plan(OFFLINE)
        assert "ONECAT_OFFLINE=1 forbids" in found.problem
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        found = machine.plan(OFFLINE)
        assert found.problem.startswith("no host compiler that CUDA 12.4 takes")
        assert found.hint == "sudo apt-get install g++"
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        assert not machine.plan(OFFLINE).problem

    def test_no_dpkg(self, machine: Machine) -> None:
        """Elsewhere than on Debian and its kin nothing can be brought."""
        machine.patch.setattr(step, "have_dpkg", lambda: False)
        assert "none can be brought on this distribution" in machine.plan().problem


class TestFlags:
    """Options for nvcc in the user's environment."""

    BAD = "nvcc fatal   : Unknown option '--bogus'\n"
    OLD = "nvcc fatal   : Unsupported gpu architecture 'compute_70'\n"

    def nvcc(self, machine: Machine, release: str, *says: str) -> None:
        """Let an nvcc be here that plans no compile but with these words, in turn."""
        home = nvcc(machine.fp, machine.tmp / "cuda", release)
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        machine.env["CUDA_PATH"] = str(home)
        argv = [str(home / "bin" / "nvcc"), "--dryrun", machine.fp.any()]
        for said in says:
            machine.fp.register(argv, stderr=said, returncode=1 if said else 0)

    @pytest.mark.parametrize("name", ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"])
    def test_refused(self, machine: Machine, name: str) -> None:
        """What nvcc does not know is told before anything is fetched."""
        self.nvcc(machine, "12.4", "", self.BAD)
        with pytest.raises(UsageError, match=f"{name}=--bogus: nvcc does not kn") as ex:
            machine.plan(**{name: "--bogus"})
        assert ex.value.hint == f"unset {name}"

    def test_taken(self, machine: Machine) -> None:
        """Good ones cost two questions, none costs none."""
        self.nvcc(machine, "12.4", "", "", "")
        both = {"NVCC_PREPEND_FLAGS": "-lineinfo", "NVCC_APPEND_FLAGS": "-Wno-x"}
        assert machine.plan(**both).toolkit is not None

    @pytest.mark.parametrize(("said", "taken"), [(BAD, False), (OLD, True)])
    def test_of_one_that_is_brought(
        self, machine: Machine, said: str, taken: bool
    ) -> None:
        """A newer nvcc knows what no nvcc knows; what it is too new for may be good."""
        self.nvcc(machine, "13.0", "", said)
        machine.env["NVCC_APPEND_FLAGS"] = "--bogus"
        if taken:
            assert machine.plan().recipe is not None
            return
        with pytest.raises(UsageError, match="does not know it"):
            machine.plan()

    def test_too_old_to_tell(self, machine: Machine) -> None:
        """What an older nvcc does not know the one that is brought may know."""
        self.nvcc(machine, "11.8")
        assert machine.plan(NVCC_APPEND_FLAGS="--new").recipe is not None

    def test_not_its_fault(self, machine: Machine) -> None:
        """What nvcc says without them as well, or of its compiler, is another's."""
        said = "nvcc fatal   : Failed to preprocess host compiler properties.\n"
        self.nvcc(machine, "12.4", self.OLD, self.OLD)
        assert machine.plan(NVCC_APPEND_FLAGS="-lineinfo").toolkit is not None
        self.nvcc(machine, "12.4", "", said)
        assert machine.plan(NVCC_APPEND_FLAGS="-lineinfo").toolkit is not None


class TestUserSettings:
    """What the user has set wrongly is told before anything is looked at."""

    def test_cuda_home_missing(self, machine: Machine) -> None:
        """A folder that does not exist."""
        with pytest.raises(UsageError, match="CUDA_HOME=/none/x does not exist"):
            machine.plan(CUDA_HOME="/none/x")

    def test_cuda_home_empty(self, machine: Machine) -> None:
        """A folder without nvcc."""
        with pytest.raises(UsageError, match="holds no bin/nvcc") as caught:
            machine.plan(CUDA_HOME=str(machine.tmp))
        assert caught.value.hint.startswith("unset CUDA_HOME")

    def test_cuda_home_with_a_newline(self, machine: Machine) -> None:
        """A path that no tool can quote."""
        with pytest.raises(UsageError):
            machine.plan(CUDA_HOME="/a\nb")

    def test_cuda_home_that_cannot(self, machine: Machine) -> None:
        """One that cannot do sm_70 is a problem with a way out."""
        home = nvcc(machine.fp, machine.tmp / "cuda", "13.0")
        plan = machine.plan(CUDA_HOME=str(home))
        with pytest.raises(CannotError, match="CUDA_HOME is set to") as caught:
            machine.act(plan)
        assert caught.value.hint.startswith("unset CUDA_HOME")

    @pytest.mark.parametrize(
        ("variable", "value"),
        [("NVCC_CCBIN", "g++-3"), ("NVCC_PREPEND_FLAGS", "-ccbin g++-3")],
    )
    def test_compiler_missing(
        self, machine: Machine, variable: str, value: str
    ) -> None:
        """A compiler that does not exist, although another one does."""
        gxx(machine.fp, machine.tmp / "bin" / "g++")
        with pytest.raises(UsageError, match=f"{variable} names the host") as caught:
            machine.plan(**{variable: value})
        assert caught.value.hint == f"unset {variable}"


class TestAct:
    """Bring and prove."""

    def test_nothing_to_bring(self, machine: Machine) -> None:
        """A kernel is compiled for each architecture, with the target's standard."""
        home = nvcc(machine.fp, machine.tmp / "cuda")
        gxx(machine.fp, machine.tmp / "bin" / "c++")
        machine.compiles(home)
        pair = machine.act(machine.plan(CUDA_HOME=str(home)))
        assert pair.env["CUDA_HOME"] == str(home) and pair.notes == ()
        assert machine.shim_env["NVCC_PREPEND_FLAGS"].startswith("-ccbin=")
        assert list(machine.root.tmp.glob("proof-*")) == []
        data = pair.to_json()
        assert data["version"] == "12.4.100" and data["compiler_version"] == "gcc 12.2"
        assert data["env"] == pair.env and data["shim"] == "not needed"

    def test_both_are_brought(self, machine: Machine) -> None:
        """Toolkit and compiler come with a line each, and reasons are shown."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        place = machine.root.toolkits / RECIPE.folder_name
        calls = []

        def provision(*args: Any, **kwargs: Any) -> Path:
            calls.append((args, kwargs))
            return nvcc(machine.fp, place)

        def bring(*args: Any) -> Any:
            calls.append((args, {}))
            return compiler("g++-13", "13.3")

        machine.patch.setattr(step.toolkit_kit, "provision", provision)
        machine.patch.setattr(step.compiler_kit, "bring", bring)
        machine.compiles(place)
        plan = replace(machine.plan(), reasons=("passed over CUDA 13.0",))
        pair = machine.act(plan)
        (first, options), (second, _) = calls
        assert first == (RECIPE, machine.root.toolkits, machine.env)
        assert options == {"mirror": None, "uv": ["/bin/uv"]}
        assert second == (13, machine.root.toolkits, machine.env, None)
        assert len(pair.notes) == 2 and "none here fitted" in pair.notes[0]
        assert "passed over CUDA 13.0" in machine.said.getvalue()
        assert "bringing CUDA 12.4 from debian trixie" in machine.said.getvalue()

    def test_brought_toolkit_is_broken(self, machine: Machine) -> None:
        """A toolkit that does not run is a failure."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        machine.patch.setattr(
            step.toolkit_kit, "provision", lambda *a, **k: machine.tmp / "none"
        )
        with pytest.raises(StepFailed, match="brought toolkit does not work"):
            machine.act(machine.plan())

    def test_brought_compiler_does_not_fit(self, machine: Machine) -> None:
        """Nor is a compiler taken that the toolkit refuses."""
        gxx(machine.fp, machine.tmp / "bin" / "g++", "14 2")
        nvcc(machine.fp, machine.root.toolkits / "cuda-12.4-compiler")
        machine.patch.setattr(
            step.compiler_kit, "bring", lambda *a: compiler("g++-14", "14.2")
        )
        with pytest.raises(StepFailed, match="does not fit: CUDA 12.4 takes gcc"):
            machine.act(machine.plan())


class TestProve:
    """The proof."""

    def prove(self, machine: Machine, root: str | Path = "/cuda") -> step.Pair:
        """Prove a pair."""
        return step.prove(
            Console(machine.said, {}),
            toolkit("12.4", root),
            compiler("g++-13", "13.3"),
            V100,
            machine.root,
            machine.env,
            ["brought"],
        )

    def test_shim(self, machine: Machine) -> None:
        """The shim's variables are in force, and it is worth a note."""
        flags = {"NVCC_PREPEND_FLAGS": "-I/shim -ccbin=/usr/bin/g++-13"}
        machine.shim = ShimResult(True, Path("/shim"), ("cospi",), flags, "clash")
        machine.compiles(Path("/cuda"))
        pair = self.prove(machine)
        assert pair.env["NVCC_PREPEND_FLAGS"] == flags["NVCC_PREPEND_FLAGS"]
        assert pair.notes == ("brought", "glibc shim in force: clash")

    def test_once(self, machine: Machine) -> None:
        """A pair that was proved is not compiled with again."""
        machine.compiles(Path("/cuda"))
        first = self.prove(machine)
        assert self.prove(machine).env == first.env

    def test_does_not_compile(self, machine: Machine) -> None:
        """What the compiler says is shown."""
        machine.compiles(Path("/cuda"), 1, "error: unsupported GNU version\n")
        with pytest.raises(StepFailed, match="cannot compile a kernel") as caught:
            self.prove(machine)
        assert caught.value.details == ("error: unsupported GNU version",)
        assert list(machine.root.tmp.glob("proof-*")) == []

    def test_killed(self, machine: Machine) -> None:
        """A compile that was killed is told from a pair that does not work."""
        machine.compiles(Path("/cuda"), 137, "Killed\n")
        with pytest.raises(StepFailed, match="was killed .* kernel for sm_70") as one:
            self.prove(machine)
        assert "memory ran out" in one.value.usual

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (cubins.Content((80,), 1), "it holds (80,)"),
            (cubins.Content(), "it holds none"),
            (cubins.Content(problem="cuobjdump failed"), "cuobjdump failed"),
        ],
    )
    def test_no_code(
        self, machine: Machine, content: cubins.Content, words: str
    ) -> None:
        """A file without code for the card is no proof."""
        machine.content = content
        machine.compiles(Path("/cuda"))
        with pytest.raises(StepFailed, match="holds no sm_70 code") as caught:
            self.prove(machine)
        assert caught.value.details == (words,)

    def test_a_brought_toolkit_is_at_fault(self, machine: Machine) -> None:
        """A damaged toolkit of ours ends in the command that takes it away."""
        home = machine.root.toolkits / "cuda-12.4"
        file = program(home / "bin" / "ptxas", "real")
        inventory.seal(home)
        seen = file.stat()
        file.write_text("lear")
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        machine.compiles(home, 1, "ptxas fatal\n")
        with pytest.raises(CannotError, match="bin/ptxas has another") as caught:
            self.prove(machine, home)
        assert caught.value.hint == f"rm -r {home}"
        assert caught.value.details == ("ptxas fatal",)

    def test_paths_that_nvcc_cannot_take(self, machine: Machine) -> None:
        """A toolkit below a quote is called through a link without one."""
        root = machine.tmp / 'a "quoted" place'
        machine.compiles(machine.tmp / "links" / root.name)
        pair = self.prove(machine, root)
        assert pair.env["CUDA_HOME"] == str(machine.tmp / "links" / root.name)

    def test_a_blank_is_no_obstacle_for_the_toolkit(self, machine: Machine) -> None:
        """A toolkit below a blank stays where it is."""
        machine.compiles(machine.tmp / "a b")
        pair = self.prove(machine, machine.tmp / "a b")
        assert pair.env["CUDA_HOME"] == str(machine.tmp / "a b")

    def test_a_blank_is_one_for_the_compiler(self, machine: Machine) -> None:
        """A compiler below a blank is told by a link: nvcc splits its variable."""
        machine.compiles(Path("/cuda"))
        blank = replace(compiler("g++-13", "13.3"), path=machine.tmp / "a b" / "g++-13")
        pair = step.prove(
            Console(machine.said, {}),
            toolkit("12.4", "/cuda"),
            blank,
            V100,
            machine.root,
            machine.env,
        )
        told = machine.tmp / "links" / "a b" / "g++-13"
        assert pair.compiler.path == told


class TestPairEnv:
    """What every build tool reads."""

    def test_all(self, tmp_path: Path) -> None:
        """A compiler that is not the default is told to all of them."""
        env = {"PATH": str(tmp_path), "NVCC_PREPEND_FLAGS": "-O3"}
        assert step.pair_env(Path("/cuda"), compiler("g++-13", "13.3"), env) == {
            "CUDA_HOME": "/cuda",
            "CUDA_PATH": "/cuda",
            "CUDACXX": "/cuda/bin/nvcc",
            "PATH": f"/cuda/bin:{tmp_path}",
            "NVCC_CCBIN": "/usr/bin/g++-13",
            "NVCC_PREPEND_FLAGS": "-ccbin=/usr/bin/g++-13 -O3",
            "CUDAHOSTCXX": "/usr/bin/g++-13",
            "CXX": "/usr/bin/g++-13",
        }

    def test_no_compiler_yet(self) -> None:
        """Before one is chosen none is told."""
        found = step.pair_env(Path("/cuda"), None, {"PATH": "/bin"})
        assert set(found) == {"CUDA_HOME", "CUDA_PATH", "CUDACXX", "PATH"}

    def test_the_default_compiler(self, tmp_path: Path) -> None:
        """The default compiler needs no CXX."""
        real = program(tmp_path / "g++-12")
        (tmp_path / "c++").symlink_to(real)
        host = replace(compiler("g++", "12.2"), path=real)
        found = step.pair_env(Path("/cuda"), host, {"PATH": str(tmp_path)})
        assert "CXX" not in found

    def test_the_users_own(self, tmp_path: Path) -> None:
        """CXX, CUDAHOSTCXX and a -ccbin of the user's stay."""
        mine = program(tmp_path / "g++-13")
        host = replace(compiler("g++", "13.3"), path=mine)
        env = {
            "PATH": str(tmp_path),
            "CXX": "clang++",
            "CUDAHOSTCXX": "g++-13",
            "NVCC_PREPEND_FLAGS": "-ccbin g++-13",
        }
        found = step.pair_env(Path("/cuda"), host, env)
        assert not {"CXX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS"} & set(found)

    def test_a_blank(self) -> None:
        """The plan shows the link that a path with a blank will get."""
        host = replace(compiler("g++-13", "13.3"), path=Path("/a b/g++-13"))
        found = step.pair_env(Path("/cuda"), host, {"PATH": ""})
        assert " " not in found["NVCC_PREPEND_FLAGS"]
        assert found["NVCC_CCBIN"].endswith("/g++-13")
