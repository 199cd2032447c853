# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The script before a compile: paths that every checkout shares, and when no cache."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tools.rig.base import near

HOME = "/state/kept/place/p"
CWD = f"{HOME}/build/temp.x"
PAIRS = [("/src", f"{HOME}/near/src"), ("/src/.venv", f"{HOME}/near/env")]


def told(*words: str, cwd: str = CWD) -> list[str]:
    """Rewrite the words of a compile."""
    return near.rewrite(words, PAIRS, HOME, cwd)


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("/src/csrc/k.cu", "../../near/src/csrc/k.cu"),
        ("-I/src/csrc", "-I../../near/src/csrc"),
        ("-isystem=/src/.venv/include", "-isystem=../../near/env/include"),
        ("/src/.venv/include", "../../near/env/include"),
        ("-L/src", "-L../../near/src"),
        (f"{HOME}/build/made.h", "../../build/made.h"),
        ("/srcs/other.cu", "/srcs/other.cu"),
        ("-I/usr/include", "-I/usr/include"),
        ("-DPLACE=/src/a", "-DPLACE=/src/a"),
        ("-Xcompiler=-fPIC", "-Xcompiler=-fPIC"),
        ("--generate-dependencies-with-compile", "-MD"),
        ("--generate-nonsystem-dependencies-with-compile", "-MMD"),
    ],
)
def test_words(word: str, want: str) -> None:
    """A path below one that has a link is named by the way over the link."""
    assert told(word) == [want]


@pytest.mark.parametrize("flag", ["-MT", "-D", "-x", "-ccbin", "-Xcompiler"])
def test_values_that_stay(flag: str) -> None:
    """The value of a flag that is no path to read from is left alone."""
    assert told(flag, "/src/a") == [flag, "/src/a"]


def test_elsewhere() -> None:
    """A compile that is not started in the work folder keeps its paths."""
    assert told("-I/src/csrc", cwd="/src/build") == ["-I/src/csrc"]
    assert near.rewrite(["-I/src", "--dependency-output"], [], "", CWD) == [
        "-I/src",
        "-MF",
    ]


def test_outputs(tmp_path: Path) -> None:
    """An output below the place of the compile is named from there, over links too."""
    real = (tmp_path / "work" / "build").resolve()
    (real / "kernel").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)
    home = str(tmp_path.resolve() / "work")
    words = ["-o", f"{link}/kernel/x.o", "--dependency-output", f"{link}/x.d"]
    found = near.rewrite([*words, "-o", "/else/y.o"], [], home, str(real))
    assert found == ["-o", "kernel/x.o", "-MF", "x.d", "-o", "/else/y.o"]


def table(**more: str) -> dict[str, str]:
    """Return the environment of a compile."""
    lines = [HOME, *(part for pair in PAIRS for part in pair)]
    return {"RIG_NEAR": "\n".join(lines), **more}


def test_without_a_cache() -> None:
    """Without one the compiler is started, with the same words as with one."""
    env = table(NVCC_PREPEND_FLAGS="-DX")
    argv, got = near.command(["nvcc", "/src/k.cu"], env, CWD)
    assert (argv, got) == (["nvcc", "../../near/src/k.cu"], env)
    assert near.command(["g++", "/src/a.c"], {}, CWD)[0] == ["g++", "/src/a.c"]


def test_with_a_cache(tmp_path: Path) -> None:
    """The cache goes first, and is told where it is."""
    env = {"RIG_CACHE": "/bin/ccache", "RIG_CACHE_DIR": str(tmp_path / "not" / "yet")}
    argv, got = near.command(["/usr/bin/g++", "-c", "a.c"], env, CWD)
    assert argv == ["/bin/ccache", "/usr/bin/g++", "-c", "a.c"]
    assert got == {**env, "PWD": CWD}


def test_nvccs_variables() -> None:
    """What nvcc takes from its environment is written where the cache looks."""
    env = {
        "RIG_CACHE": "c",
        "NVCC_PREPEND_FLAGS": "-ccbin=/g++ -DA",
        "NVCC_APPEND_FLAGS": "-DB",
        "NVCC_CCBIN": "/other",
    }
    argv, got = near.command(["/cuda/bin/nvcc", "-c"], env, CWD)
    assert argv[2:] == ["-ccbin", "/g++", "-DA", "-c", "-DB"]
    assert "NVCC_PREPEND_FLAGS" not in got and "NVCC_APPEND_FLAGS" not in got
    del env["NVCC_PREPEND_FLAGS"]
    argv, _ = near.command(["/cuda/bin/nvcc", "-c"], env, CWD)
    assert argv[2:] == ["-ccbin", "/other", "-c", "-DB"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache could not keep one more object, it is left out."""
    env = {"RIG_CACHE": "c", "RIG_CACHE_DIR": str(tmp_path)}
    assert near.command(["g++"], env, CWD)[0] == ["c", "g++"]
    monkeypatch.setattr(near, "ROOM", 1 << 62)
    assert near.command(["g++"], env, CWD)[0] == ["g++"]

    def unreadable(path: str) -> os.statvfs_result:
        raise OSError

    monkeypatch.setattr(os, "statvfs", unreadable)
    assert near.command(["g++"], env, CWD)[0] == ["g++"]


class TestServers:
    """A cache with servers is used while they answer."""

    def test_its_own(self, tmp_path: Path) -> None:
        """A server that does not listen is not waited for."""
        path = str(tmp_path / "s")
        env = {"RIG_CACHE": "c", "RIG_CACHE_SOCKET": path}
        assert near.command(["g++"], env, CWD)[0] == ["g++"]
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            assert near.command(["g++"], env, CWD)[0] == ["c", "g++"]
        assert near.command(["g++"], env, CWD)[0] == ["g++"]

    def test_the_shared_one(self, tmp_path: Path) -> None:
        """One that went away is asked once, by the first compile that misses it."""
        path = str(tmp_path / "s")
        with (
            socket.socket(socket.AF_UNIX) as own,
            socket.create_server(("127.0.0.1", 0)) as shared,
        ):
            own.bind(path)
            own.listen()
            port = shared.getsockname()[1]
            env = {
                "RIG_CACHE": "c",
                "RIG_CACHE_SOCKET": path,
                "RIG_CACHE_SHARED": f"127.0.0.1:{port}",
            }
            assert near.command(["g++"], env, CWD)[0] == ["c", "g++"]
            shared.close()
            assert near.command(["g++"], env, CWD)[0] == ["g++"]
            assert (tmp_path / near.AWAY).exists()
            with socket.create_server(("127.0.0.1", port)):
                assert near.command(["g++"], env, CWD)[0] == ["g++"]

    @pytest.mark.parametrize("address", ["host", "", "127.0.0.1:no"])
    def test_no_address(self, address: str) -> None:
        """What is no address is not reached."""
        assert not near.reached(address)

    def test_a_mark_that_cannot_be_made(self, tmp_path: Path) -> None:
        """Where the mark cannot be left, each compile finds out for itself."""
        assert not near._said(str(tmp_path / "none" / "away"))


class TestMain:
    """The script itself."""

    def test_becomes_the_compile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is replaced by the compiler, with its whole environment."""
        seen: list[object] = []
        monkeypatch.setattr(os, "execvpe", lambda *given: seen.extend(given))
        monkeypatch.setenv("RIG_CACHE", "")
        assert near.main(["g++", "-c"]) == 127
        assert seen[:2] == ["g++", ["g++", "-c"]]

    def test_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A compiler that is missing is named, as a shell would."""
        assert near.main(["/no/such/g++"]) == 127
        assert capsys.readouterr().err == "/no/such/g++: No such file or directory\n"

    def test_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a command it says how it is used."""
        assert near.main([]) == 2
        assert "COMPILER" in capsys.readouterr().err
