# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Real tools fail, and what they print on this machine is recognised."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools.rig.diagnose import examine
from tools.rig.diagnose.entries import Role
from tools.rig.diagnose.judge import Judgement

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
PYTHON = sys.executable
NEW_NVCC = Path("/usr/local/cuda-13.0/bin/nvcc")


def output_of(words: list[str], folder: Path, **env: str) -> bytes:
    """Return what a program printed, both streams as they came."""
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout


def said(output: bytes) -> Judgement:
    """Return the judgement of what a program printed."""
    return examine.stream([output]).judgement


def cause(output: bytes) -> str:
    """Return the id of the root cause, or the verdict where there is none."""
    judgement = said(output)
    root = judgement.root
    return judgement.verdict.value if root is None else root.entry.id


def needs(program: str) -> str:
    """Return a program's path, or skip."""
    own = str(Path(PYTHON).parent)
    found = shutil.which(program, path=own) or shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not here")
    return found


class TestCompilers:
    """What compilers and linkers print."""

    @pytest.mark.parametrize(
        ("source", "words", "wanted"),
        [
            (
                "#include <Python.h>\n",
                ["-c", "a.c"],
                "python-header-missing-in-compile",
            ),
            ("int main(){return 0;}\n", ["a.c", "-lcuda"], "link-libcuda-missing"),
            ("#include <no/such.h>\n", ["-c", "a.c"], "header-missing"),
            ("int f(void) { return no_such; }\n", ["-c", "a.c"], "compile-error"),
        ],
    )
    def test_gcc(
        self, tmp_path: Path, source: str, words: list[str], wanted: str
    ) -> None:
        """A missing header or library is named; so is a mistake of one's own."""
        (tmp_path / "a.c").write_text(source)
        assert cause(output_of([needs("gcc"), *words], tmp_path)) == wanted

    def test_memory(self, tmp_path: Path) -> None:
        """A compiler that gets no memory says so in its own words."""
        (tmp_path / "a.cpp").write_text('#include <regex>\nstd::regex r("a");\n')
        limited = f"ulimit -v 200000; exec {needs('g++')} -O2 -c a.cpp"
        assert cause(output_of(["sh", "-c", limited], tmp_path)) == (
            "compiler-out-of-memory"
        )

    def test_new_nvcc(self, tmp_path: Path) -> None:
        """CUDA 13 cannot compile for Volta."""
        if not NEW_NVCC.exists():
            pytest.skip("no CUDA 13 is here")
        (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
        words = [str(NEW_NVCC), "-arch=sm_70", "-c", "k.cu"]
        assert cause(output_of(words, tmp_path)) == "nvcc-without-volta"


class TestBuilders:
    """What CMake and ninja print."""

    @pytest.mark.parametrize(
        ("text", "options", "wanted"),
        [
            ("cmake_minimum_required(VERSION 99.0)\n", [], "cmake-too-old"),
            (
                "cmake_minimum_required(VERSION 3.20)\nproject(x CXX)\n",
                ["-DCMAKE_CXX_COMPILER=/no/such/g++"],
                "host-compiler-not-found",
            ),
        ],
    )
    def test_cmake(
        self, tmp_path: Path, text: str, options: list[str], wanted: str
    ) -> None:
        """The cause stands first, that configuring stopped only follows."""
        (tmp_path / "CMakeLists.txt").write_text(text)
        words = [needs("cmake"), "-S", ".", "-B", "out", *options]
        judgement = said(output_of(words, tmp_path))
        assert judgement.root is not None
        assert judgement.root.entry.id == wanted
        assert judgement.findings[1].role is Role.CONSEQUENCE

    def test_killed_without_a_word(self, tmp_path: Path) -> None:
        """A compile that the kernel killed leaves nothing but its status."""
        compiler = tmp_path / "g++"
        compiler.write_text("#!/bin/sh\nkill -9 $$\n")
        compiler.chmod(0o755)
        command = f"{compiler} -O2 -o x.cpp.o -c x.cpp"
        rule = f"rule r\n  command = {command}\nbuild x.cpp.o: r\n"
        (tmp_path / "build.ninja").write_text(rule)
        output = output_of([needs("ninja")], tmp_path)
        assert cause(output) == "compile-killed-silently"


class TestFetchers:
    """What pip, uv and git print when something is not to be had."""

    def test_pip(self, tmp_path: Path) -> None:
        """A version that no index has."""
        if importlib.util.find_spec("pip") is None:
            pytest.skip("this environment was made without pip")
        words = [PYTHON, "-m", "pip", "install", "--no-index", "no-such-thing==1"]
        assert cause(output_of(words, tmp_path)) == "package-version-not-found"

    def test_uv_version(self, tmp_path: Path) -> None:
        """The same with uv."""
        words = [needs("uv"), "pip", "install", "--target", "t", "--no-index", "no==1"]
        output = output_of(words, tmp_path, UV_NO_CONFIG="1")
        assert cause(output) == "package-version-not-found"

    def test_uv(self, tmp_path: Path) -> None:
        """A name that does not resolve, as uv tells it."""
        index = ["--index-url", "https://index.invalid/simple"]
        words = [needs("uv"), "pip", "install", "--target", "t", *index, "no-such"]
        output = output_of(words, tmp_path, UV_HTTP_RETRIES="0", UV_NO_CONFIG="1")
        assert cause(output) == "dns-failure"

    @pytest.mark.parametrize(
        ("host", "wanted"),
        [("host.invalid", "dns-failure"), ("127.0.0.1:9", "host-unreachable")],
    )
    def test_git(self, tmp_path: Path, host: str, wanted: str) -> None:
        """A host without an address, and one where nobody listens."""
        words = [needs("git"), "clone", f"https://{host}/x.git"]
        assert cause(output_of(words, tmp_path)) == wanted

    def test_git_owner(self, tmp_path: Path) -> None:
        """A repository of somebody else's."""
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        subprocess.run([needs("git"), "init", "-q", "."], cwd=tmp_path, check=True)
        os.chown(tmp_path, 65534, 65534)
        output = output_of(["git", "status"], tmp_path, HOME="/nonexistent")
        assert cause(output) == "git-dubious-ownership"


class TestPythons:
    """What Python prints when it loads or runs something."""

    def test_undefined_symbol(self, tmp_path: Path) -> None:
        """A library that wants what nobody has."""
        (tmp_path / "d.c").write_text("void no(void);\nvoid f(void) { no(); }\n")
        words = [needs("gcc"), "-shared", "-fPIC", "-o", "d.so", "d.c"]
        subprocess.run(words, cwd=tmp_path, check=True)
        code = "import ctypes, os; ctypes.CDLL('./d.so', os.RTLD_NOW)"
        output = output_of([PYTHON, "-c", code], tmp_path)
        assert cause(output) == "undefined-symbol-other"

    def test_no_vllm(self, tmp_path: Path) -> None:
        """The wrong environment."""
        output = output_of([PYTHON, "-I", "-c", "import vllm"], tmp_path)
        assert cause(output) == "vllm-not-in-this-python"

    def test_port(self, tmp_path: Path) -> None:
        """A port that is taken."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code = f"import socket; socket.socket().bind(('127.0.0.1', {port}))"
            output = output_of([PYTHON, "-c", code], tmp_path)
        assert cause(output) == "port-already-bound"

    def test_full_disk(self, tmp_path: Path) -> None:
        """A disk that is full, as Python and as a compiler tell it."""
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        code = "open('/dev/full', 'w').write('x' * 100_000)"
        assert cause(output_of([PYTHON, "-c", code], tmp_path)) == "disk-full"


class TestCommand:
    """The command itself, as people type it."""

    def diagnose(self, *words: str, given: bytes = b"") -> tuple[int, str]:
        """Return the exit code and what stands on stdout."""
        done = subprocess.run(
            [PYTHON, "-m", "tools.rig.diagnose", *words],
            cwd=ROOT,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            input=given,
            stdout=subprocess.PIPE,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    @pytest.mark.parametrize(
        ("log", "code", "said"),
        [
            (b"all is well\n", 0, "nothing wrong"),
            (b"nvcc fatal   : Unsupported gpu architecture 'compute_70'\n", 1, "ROOT"),
            (b"RuntimeError: of a kind that nobody knows\n", 5, "not recognised"),
        ],
    )
    def test_exit_codes(self, tmp_path: Path, log: bytes, code: int, said: str) -> None:
        """From a file, from a compressed one and from standard input."""
        plain, packed = tmp_path / "a log.txt", tmp_path / "b.gz"
        plain.write_bytes(log)
        packed.write_bytes(gzip.compress(log))
        for answer in (
            self.diagnose(str(plain)),
            self.diagnose(str(packed)),
            self.diagnose("-", given=log),
        ):
            assert answer[0] == code
            assert said in answer[1]

    def test_bad_log(self, tmp_path: Path) -> None:
        """A log that is not there is wrong usage."""
        assert self.diagnose(str(tmp_path / "none"))[0] == 2
