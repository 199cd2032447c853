# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""uv's command lines, and what happens when a download breaks off."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.builds import uv
from tools.rig.builds.uv_failure import decisive
from tools.rig.host.look import Disk, Hung
from tools.rig.host.storage import Mount

UV = Path("/tools/uv")
MOUNT = Mount(Path("/nas"), "nfs4", "srv:/x", "rw", "0:9")


class TestProgram:
    """Which uv is used."""

    def test_beside_the_interpreter(self, tmp_path: Path) -> None:
        """The task environment's own uv comes first."""
        (tmp_path / "uv").touch(mode=0o755)
        assert uv.program({}, str(tmp_path / "python")) == tmp_path / "uv"

    def test_on_the_path(self, tmp_path: Path) -> None:
        """Else the user's."""
        (tmp_path / "uv").touch(mode=0o755)
        got = uv.program({"PATH": str(tmp_path)}, "/nowhere/python")
        assert got == tmp_path / "uv"

    def test_nowhere(self, tmp_path: Path) -> None:
        """None is an error with the command that brings it."""
        with pytest.raises(CannotError, match="uv is not installed"):
            uv.program({"PATH": str(tmp_path)}, "/nowhere/python")


def test_environment_keeps_what_the_user_set() -> None:
    """A cache of the user's own stays, everything else lies under the root."""
    root = StateRoot(Path("/r"))
    got = uv.environment({"UV_CACHE_DIR": "/mine", "A": "1"}, root, offline=True)
    assert got == {
        "A": "1",
        "UV_CACHE_DIR": "/mine",
        "UV_PYTHON_INSTALL_DIR": "/r/toolkits/python",
        "UV_HTTP_TIMEOUT": "120",
        "UV_OFFLINE": "1",
    }
    assert uv.environment({"UV_CACHE_DIR": ""}, root)["UV_CACHE_DIR"] == "/r/cache/uv"


class TestMakeVenv:
    """An environment is made beside its place."""

    def test_argv_and_rename(self, tmp_path: Path) -> None:
        """It is made under another name, marked, and renamed when whole."""
        folder = tmp_path / "venvs" / "a b"
        seen: list[list[str]] = []

        def ask(argv: list[str], *, cwd: Path, **how: Any) -> run.Result:
            seen.append(argv)
            assert how["env"] == {"A": "1"}
            (cwd / "venv").mkdir()
            return run.Result((), 0, "", "", 0.1)

        made = uv.make_venv(
            UV, Path("/py"), folder, env={"A": "1"}, prompt="it's", ask=ask
        )
        assert made and (folder / ".rig-made").is_file()
        [argv] = seen
        beside = Path(argv[-1])
        assert argv[:-1] == [
            "/tools/uv",
            "venv",
            "--no-project",
            "--relocatable",
            "--no-python-downloads",
            "--python",
            "/py",
            "--prompt",
            "it's",
        ]
        assert beside.parent.name.startswith(f".a b.{os.getpid()}-")
        assert list(folder.parent.iterdir()) == [folder]

    def test_uv_fails(self, tmp_path: Path) -> None:
        """Its words are shown and nothing is left."""
        answer = run.Result((), 2, "", "warning: x\nerror: bad Python\n  why", 0.1)
        with pytest.raises(StepFailed) as caught:
            uv.make_venv(
                UV,
                Path("/py"),
                tmp_path / "v",
                env={},
                prompt="p",
                ask=lambda *a, **k: answer,
            )
        assert caught.value.details == ("error: bad Python", "  why")
        assert list(tmp_path.iterdir()) == []

    def test_disk_full(self, tmp_path: Path) -> None:
        """A full disk is named as one, whoever meets it."""

        def ask(argv: list[str], **how: Any) -> run.Result:
            raise OSError(28, "No space left on device")

        with pytest.raises(StepFailed, match="the disk is full") as caught:
            uv.make_venv(UV, Path("/p"), tmp_path / "v", env={}, prompt="p", ask=ask)
        assert caught.value.hint == f"df -h {tmp_path}"
        assert list(tmp_path.iterdir()) == []

    def test_somebody_was_faster(self, tmp_path: Path) -> None:
        """Of two that make the same one, the first wins and the other agrees."""
        folder = tmp_path / "v"

        def ask(argv: list[str], *, cwd: Path, **how: Any) -> run.Result:
            (cwd / "venv").mkdir()
            folder.mkdir()
            (folder / "theirs").touch()
            return run.Result((), 0, "", "", 0.1)

        assert not uv.make_venv(UV, Path("/p"), folder, env={}, prompt="p", ask=ask)
        assert [p.name for p in folder.iterdir()] == ["theirs"]
        assert list(tmp_path.iterdir()) == [folder]

    def test_sweeps_only_the_dead(self, tmp_path: Path) -> None:
        """What a living process makes beside stays, and so does anything else."""
        names = [f".v.{2**22 + 5}-abcdef", f".v.{os.getpid()}-abcdef", ".v.x", "w"]
        for name in names:
            (tmp_path / name).mkdir()
        uv._sweep(tmp_path / "v")
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names[1:])
        uv._sweep(tmp_path / "absent" / "v")


class TestInstallPython:
    """A Python that uv brings."""

    def test_brought(self, fp: FakeProcess, tmp_path: Path) -> None:
        """Installed without touching the user's bin, then asked for."""
        seen: list[Any] = []

        def stream(argv: list[str], **how: Any) -> run.Result:
            seen.append(argv)
            return run.Result((), 0, "", "", 1)

        find = (
            "/tools/uv python find --managed-python --no-python-downloads --no-project"
        )
        fp.register([*find.split(), "3.12"], stdout="/r/python3.12\n")
        got = uv.install_python(
            UV, "3.12", env=dict(os.environ), log=tmp_path / "l", stream=stream
        )
        assert got == (Path("/r/python3.12"), "")
        assert seen == [["/tools/uv", "python", "install", "--no-bin", "3.12"]]

    def test_not_brought(self, tmp_path: Path) -> None:
        """The decisive line says why."""

        def stream(argv: list[str], *, on_line: Any, **how: Any) -> run.Result:
            on_line("error: Failed to install")
            on_line("  cause: dns error")
            return run.Result((), 1, "", "", 1)

        got = uv.install_python(UV, "3.12", env={}, log=tmp_path / "l", stream=stream)
        assert got == (None, "dns error")

    def test_silent(self, tmp_path: Path) -> None:
        """Without a word there is the exit status; a lost one is an answer too."""
        bad = run.Result((), 3, "", "", 1)
        good = run.Result((), 0, "", "", 1)
        lost = run.Result((), 2, "", "not found\n", 1)
        how: dict[str, Any] = {"env": {}, "log": tmp_path / "l"}
        got = uv.install_python(UV, "3.12", stream=lambda *a, **k: bad, **how)
        assert got == (None, "exit status 3")
        got = uv.install_python(
            UV, "3.12", stream=lambda *a, **k: good, ask=lambda *a, **k: lost, **how
        )
        assert got == (None, "not found")


class Line:
    """A uv that fails in given ways, one after the other, and then succeeds."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.argvs: list[list[str]] = []
        self.slept: list[float] = []
        self.out = io.StringIO()

    def __call__(
        self, argv: list[str], *, on_line: Callable[[str], None], **how: Any
    ) -> run.Result:
        """Stand for `run.stream`."""
        self.argvs.append(argv)
        assert how["idle_s"] == 300 and how["nice"] == 0
        if not self.failures:
            on_line("Installed 1 package")
            return run.Result((), 0, "", "", 1)
        said = self.failures.pop(0)
        if said == "stall":
            return run.Result((), -9, "", "", 300, True)
        for line in said.splitlines():
            on_line(line)
        return run.Result((), 1, "", "", 1)

    def install(self, tmp_path: Path, **more: Any) -> str:
        """Install with this line; return what people were told."""
        uv.install(
            UV,
            tmp_path / "bin/python",
            ["-r", "a b.txt"],
            env={"UV_CACHE_DIR": "/c", "TMPDIR": "/t"},
            console=Console(self.out, {}),
            log=tmp_path / "log",
            stream=self,
            sleep=self.slept.append,
            **{"disk": lambda path: Disk(path, path, MOUNT), **more},
        )
        return self.out.getvalue()


class TestInstall:
    """A download of many GB."""

    def test_exact_argv(self, tmp_path: Path) -> None:
        """One call when all is well."""
        line = Line()
        assert line.install(tmp_path) == ""
        python = str(tmp_path / "bin/python")
        want = ["/tools/uv", "pip", "install", "--python", python, "-r", "a b.txt"]
        assert line.argvs == [want]

    @pytest.mark.parametrize(
        "said",
        [
            "error: Failed to download\n  cause: connection reset by peer",
            "error: x\n  cause: error decoding response body",
            "error: x\n  cause: operation timed out",
            "error: Request failed after 3 retries",
        ],
    )
    def test_goes_on_after_a_broken_line(self, tmp_path: Path, said: str) -> None:
        """The same command again: what is finished lies in the cache."""
        line = Line(said, said)
        told = line.install(tmp_path, cwd=tmp_path)
        assert len(line.argvs) == 3 and line.slept == [5.0, 20.0]
        assert "try 2 of 4 in 5 s, finished files are kept in /c" in told

    def test_gives_up_in_the_end(self, tmp_path: Path) -> None:
        """The number of tries is bounded, and the way on is told."""
        line = Line(*["error: dns error"] * 9)
        with pytest.raises(StepFailed, match="broke off 4 times") as caught:
            line.install(tmp_path)
        assert len(line.argvs) == 4 and "kept in /c" in caught.value.usual

    def test_other_failures_are_final(self, tmp_path: Path) -> None:
        """A requirement that cannot be met is not tried again."""
        line = Line("Resolved\nerror: No solution found\n  because x")
        with pytest.raises(StepFailed, match="uv pip install failed") as caught:
            line.install(tmp_path)
        assert len(line.argvs) == 1
        assert caught.value.details == ("error: No solution found", "  because x")

    def test_disk_full(self, tmp_path: Path) -> None:
        """A full disk is named and not tried again."""
        line = Line("error: write\n  cause: No space left on device (os error 28)")
        with pytest.raises(StepFailed, match="the disk is full") as caught:
            line.install(tmp_path)
        assert caught.value.hint.startswith("df -h")

    def test_stuck_on_a_dead_disk(self, tmp_path: Path) -> None:
        """The disk that does not answer is named with its statistics."""

        def disk(path: Path) -> Disk:
            return Disk(path, path, MOUNT, hung=str(path) == "/c", details=("age: 3",))

        with pytest.raises(Hung, match="/nas") as caught:
            Line("stall").install(tmp_path, disk=disk)
        assert caught.value.details == ("age: 3",) and "/c" in caught.value.what

    def test_stuck_on_a_silent_network(self, tmp_path: Path) -> None:
        """When all disks answer it is the line, and that is tried again."""
        line = Line("stall")
        told = line.install(tmp_path)
        assert "nothing moved for 300 s" in told and len(line.argvs) == 2


def test_decisive() -> None:
    """The innermost cause, else the error, else the last word."""
    assert decisive(["error: a", "  cause: b", "", "hint"]) == "b"
    assert decisive(["x", "error: a", "y"]) == "error: a"
    assert decisive(["x", "y", ""]) == "y"
    assert decisive([]) == ""
