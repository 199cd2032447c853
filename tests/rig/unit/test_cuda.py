# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Finding CUDA toolkits and asking them what they can do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.fakecuda import nvcc, program
from tools.rig.host import cuda


class TestProbe:
    """One toolkit."""

    def test_a_good_one(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Version and architectures are read, and decide what it can do."""
        found = cuda.probe(nvcc(fp, tmp_path / "cuda"), "PATH")
        assert (found.version, found.release) == ("12.4.100", "12.4")
        assert found.sms == (50, 60, 70, 80, 90) and not found.problem
        assert found.can(70) and not found.can(75)
        assert "CUDA 12.4.100" in found.describe()
        assert "sm_50 to sm_90" in found.describe()

    def test_asks_exactly_this(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Two questions, and no other, go to nvcc."""
        root = nvcc(fp, tmp_path / "cuda")
        cuda.probe(root, "PATH")
        program_ = str(root / "bin" / "nvcc")
        assert [list(call) for call in fp.calls] == [
            [program_, "--version"],
            [program_, "--list-gpu-code"],
        ]

    def test_cannot_do_volta(self, fp: FakeProcess, tmp_path: Path) -> None:
        """CUDA 13 is read like any other and says that sm_70 is not among its own."""
        found = cuda.probe(nvcc(fp, tmp_path / "cuda", "13.0"), "PATH")
        assert not found.problem and not found.can(70) and found.can(75)

    def test_no_folder(self, tmp_path: Path) -> None:
        """A folder that does not exist is a problem, without starting anything."""
        found = cuda.probe(tmp_path / "none", "CUDA_HOME")
        assert found.problem == "the folder does not exist"
        assert found.describe().endswith("(CUDA_HOME): the folder does not exist")

    def test_no_nvcc(self, tmp_path: Path) -> None:
        """A folder without an executable nvcc is a problem."""
        program(tmp_path / "bin" / "nvcc").chmod(0o644)
        found = cuda.probe(tmp_path, "CUDA_HOME")
        assert found.problem == "holds no bin/nvcc" and not found.can(70)

    @pytest.mark.parametrize(
        ("out", "err", "code", "words"),
        [
            ("hello\n", "", 0, "(status 0): hello"),
            ("", "nvcc fatal: Unknown option\n", 1, "(status 1): nvcc fatal"),
            ("", "", 139, "(status 139)"),
            ("release 12.4, V12.4.100", "", 1, "(status 1)"),
        ],
    )
    def test_nonsense(
        self,
        fp: FakeProcess,
        tmp_path: Path,
        out: str,
        err: str,
        code: int,
        words: str,
    ) -> None:
        """An nvcc that fails or talks nonsense is a problem that quotes it."""
        path = program(tmp_path / "bin" / "nvcc")
        fp.register([str(path), "--version"], stdout=out, stderr=err, returncode=code)
        found = cuda.probe(tmp_path, "PATH")
        assert "does not say its version" in found.problem and words in found.problem
        assert found.sms == () and found.version == ""

    def test_no_architectures(self, fp: FakeProcess, tmp_path: Path) -> None:
        """An nvcc that does not list its architectures is not trusted with any."""
        found = cuda.probe(nvcc(fp, tmp_path, sms=()), "PATH")
        assert found.problem == "nvcc does not list its architectures"

    def test_no_architectures_with_a_reason(
        self, fp: FakeProcess, tmp_path: Path
    ) -> None:
        """What nvcc says instead of a list is told, since it names the cause."""
        path = program(tmp_path / "bin" / "nvcc")
        said = "nvcc error   : 'x' could not be opened"
        fp.register([str(path), "--version"], stdout="release 12.4, V12.4.131")
        fp.register([str(path), "--list-gpu-code"], stderr=f"{said}\n", returncode=1)
        found = cuda.probe(tmp_path, "PATH")
        assert found.problem == f"nvcc does not list its architectures: {said}"

    @pytest.mark.allow_process
    def test_hangs_at_the_second_question(self, tmp_path: Path) -> None:
        """The list of architectures is given up, too, and that is said."""
        answer = "[ $1 = --version ] && echo release 12.4, V12.4.131 || sleep 60"
        program(tmp_path / "bin" / "nvcc", f"#!/bin/sh\n{answer}\n")
        found = cuda.probe(tmp_path, "PATH", timeout=0.5)
        assert found.problem == "nvcc did not answer within 0 s"

    @pytest.mark.allow_process
    def test_hangs(self, tmp_path: Path) -> None:
        """An nvcc that does not answer is given up after the stated time."""
        program(tmp_path / "bin" / "nvcc", "#!/bin/sh\nsleep 60\n")
        found = cuda.probe(tmp_path, "PATH", timeout=0.3)
        assert found.problem == "nvcc did not answer within 0 s"

    def test_cuobjdump(self, tmp_path: Path) -> None:
        """It lies beside nvcc, or where a toolkit has it."""
        made = cuda.Toolkit(tmp_path, tmp_path / "other" / "nvcc", "", (), "PATH")
        assert made.cuobjdump == tmp_path / "bin" / "cuobjdump"
        beside = program(tmp_path / "other" / "cuobjdump")
        assert made.cuobjdump == beside


class TestFind:
    """All toolkits of a machine."""

    @pytest.fixture
    def machine(self, tmp_path: Path) -> Path:
        """Return the root of a machine without any toolkit."""
        (tmp_path / "machine").mkdir()
        return tmp_path / "machine"

    def test_none(self, machine: Path) -> None:
        """A machine without a toolkit has none."""
        assert cuda.find({"PATH": ""}, machine / "toolkits", system=machine) == []

    def test_order(self, fp: FakeProcess, machine: Path) -> None:
        """The user's comes first, our own last; each one once, however it is met."""
        home = nvcc(fp, machine / "mine", "12.8")
        on_path = nvcc(fp, machine / "opt" / "x", "12.9")
        local = nvcc(fp, machine / "usr/local/cuda-13.0", "13.0")
        (machine / "usr/local/cuda").symlink_to("cuda-13.0")
        (machine / "usr/local/cuda-empty").mkdir()
        arch = nvcc(fp, machine / "opt/cuda", "12.0")
        usr = nvcc(fp, machine / "usr", "11.8")
        ours = machine / "toolkits"
        made = nvcc(fp, ours / "cuda-12.4", "12.4")
        (ours / "downloads").mkdir()
        env = {
            "CUDA_HOME": str(home),
            "CUDA_PATH": str(home),
            "PATH": str(on_path / "bin"),
        }
        found = cuda.find(env, ours, system=machine)
        assert [(t.root, t.origin) for t in found] == [
            (home, "CUDA_HOME"),
            (on_path, "PATH"),
            (local, "/usr/local"),
            (arch, "package"),
            (usr, "package"),
            (made, "provisioned"),
        ]

    def test_broken_cuda_home_is_told(self, machine: Path) -> None:
        """A CUDA_HOME that holds nothing is in the list, with its problem."""
        env = {"CUDA_HOME": str(machine / "none"), "PATH": ""}
        (found,) = cuda.find(env, system=machine)
        assert found.origin == "CUDA_HOME" and found.problem

    def test_relative_cuda_home(
        self, fp: FakeProcess, machine: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A relative CUDA_HOME is made absolute, since builds change the folder."""
        nvcc(fp, machine / "mine")
        monkeypatch.chdir(machine)
        (found,) = cuda.find({"CUDA_HOME": "mine", "PATH": ""}, system=machine)
        assert found.root == machine / "mine" and not found.problem

    def test_the_package_on_path(self, fp: FakeProcess, machine: Path) -> None:
        """A distribution's nvcc in /usr/bin is the package, whatever kind it is."""
        root = nvcc(fp, machine / "usr")
        (root / "bin" / "nvcc").write_text("#!/bin/sh\n")
        (found,) = cuda.find({"PATH": str(root / "bin")}, system=machine)
        assert (found.root, found.origin) == (root, "package")


class TestToolkitOf:
    """From an nvcc on PATH to its folder."""

    def test_a_program(self, tmp_path: Path) -> None:
        """A real program lies in the bin folder of its toolkit, links followed."""
        real = program(tmp_path / "cuda" / "bin" / "nvcc", "\x7fELF")
        link = tmp_path / "nvcc"
        link.symlink_to(real)
        assert cuda.toolkit_of(link) == tmp_path / "cuda"

    def test_a_script(self, fp: FakeProcess, tmp_path: Path) -> None:
        """A script that starts the real one is asked where that lies."""
        script = program(tmp_path / "bin" / "nvcc", "#!/bin/sh\n")
        top = tmp_path / "cuda 12" / "bin"
        program(top / "nvcc")
        fp.register(
            [str(script), "--dryrun", "-x", "cu", "/dev/null"],
            stderr=f"#$ _HERE_={top}\n#$ TOP={top}/..\n",
        )
        assert cuda.toolkit_of(script) == tmp_path / "cuda 12"

    @pytest.mark.parametrize("said", ["", "#$ TOP=/nowhere\n"])
    def test_a_script_that_does_not_say(
        self, fp: FakeProcess, tmp_path: Path, said: str
    ) -> None:
        """Where the script's answer leads nowhere, its own place is taken."""
        script = program(tmp_path / "bin" / "nvcc", "#!/bin/sh\n")
        fp.register([str(script), fp.any()], stderr=said)
        assert cuda.toolkit_of(script) == tmp_path

    def test_unreadable(self, tmp_path: Path) -> None:
        """An nvcc that cannot be read is taken for a program."""
        (tmp_path / "bin" / "nvcc").mkdir(parents=True)
        assert cuda.toolkit_of(tmp_path / "bin" / "nvcc") == tmp_path
