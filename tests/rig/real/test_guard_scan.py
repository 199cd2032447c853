# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan against real processes that reach our files in every way there is."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.rig.support.nobody import NOBODY, as_nobody, needs_root
from tests.rig.support.places import PLACE, Town
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, InUseError
from tools.rig.builds import generations, switch
from tools.rig.guard import gate
from tools.rig.guard.scan import User, scan
from tools.rig.guard.targets import Targets

pytestmark = pytest.mark.real

MAP = """
import mmap, sys, time
with open(sys.argv[1], "rb") as fh:
    held = mmap.mmap(fh.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
time.sleep(120)
"""
BIND_AND_MAP = """
import os, subprocess, sys
subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[2]], check=True)
os.execv(sys.executable, [sys.executable, "-I", "-c", sys.argv[4], sys.argv[3]])
"""
WAIT = "import time; print('ready', flush=True); time.sleep(120)"

Start = Callable[..., int]


@pytest.fixture
def base() -> Iterator[Path]:
    """Give a folder that other users may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="rig guard ü'"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def venv(base: Path) -> Path:
    """Give an environment with one library."""
    folder = base / "venvs/one"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib/one.so").write_bytes(b"x" * 5000)
    return folder


@pytest.fixture
def start() -> Iterator[Start]:
    """Give a function that starts a program and returns its pid when it is ready."""
    running: list[subprocess.Popen[str]] = []

    def go(argv: Sequence[str | Path], **options: object) -> int:
        proc = subprocess.Popen(  # type: ignore[call-overload]  # options are varied
            [os.fspath(a) for a in argv],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            **options,
        )
        running.append(proc)
        assert proc.stdout.readline() == "ready\n"
        pid: int = proc.pid
        return pid

    yield go
    for proc in running:
        proc.kill()
        proc.wait()
        for pipe in (proc.stdin, proc.stdout):
            if pipe:
                pipe.close()


def mapping(path: Path) -> list[str | Path]:
    """Return a program that maps `path` and waits; isolated from our environment."""
    return [sys.executable, "-I", "-c", MAP, path]


def found(venv: Path, pid: int, checkout: Path | None = None) -> User | None:
    """Return what the scan says about one process."""
    result = scan(Targets.of(venv, checkout))
    return next((user for user in result.users if user.pid == pid), None)


def needs_mounts() -> None:
    """Skip where a private mount cannot be made."""
    probe = ["unshare", "-m", "true"]
    if not shutil.which("unshare") or subprocess.run(probe, check=False).returncode:
        pytest.skip("this user may not make mount namespaces")


class TestMapped:
    """A library that is mapped is seen by whatever name it was reached."""

    def test_plain(self, venv: Path, start: Start) -> None:
        """A process that maps a library of the environment is named with it."""
        pid = start(mapping(venv / "lib/one.so"))
        user = found(venv, pid)
        assert user is not None
        assert user.maps == ("lib/one.so",)
        assert user.command.startswith(sys.executable)

    def test_through_a_link(self, base: Path, venv: Path, start: Start) -> None:
        """A symbolic link elsewhere does not hide the file it leads to."""
        link = base / "elsewhere.so"
        link.symlink_to(venv / "lib/one.so")
        assert found(venv, start(mapping(link))) is not None

    def test_environment_given_as_a_link(
        self, base: Path, venv: Path, start: Start
    ) -> None:
        """The environment may be named by the link in the checkout."""
        (base / "checkout").mkdir()
        (base / "checkout/.venv").symlink_to(venv)
        pid = start(mapping(venv / "lib/one.so"))
        assert found(base / "checkout/.venv", pid) is not None

    def test_hard_link_elsewhere(self, base: Path, venv: Path, start: Start) -> None:
        """Another environment with the same inode, as uv makes them, does not count."""
        other = base / "venvs/two"
        other.mkdir()
        os.link(venv / "lib/one.so", other / "one.so")
        pid = start(mapping(other / "one.so"))
        assert found(venv, pid) is None
        assert found(other, pid) is not None

    def test_hard_link_of_ours(self, base: Path, venv: Path, start: Start) -> None:
        """A file with several links counts when it was opened by our name."""
        os.link(venv / "lib/one.so", base / "cached.so")
        assert found(venv, start(mapping(venv / "lib/one.so"))) is not None

    def test_renamed(self, venv: Path, start: Start) -> None:
        """A file that was renamed after it was mapped is still ours."""
        pid = start(mapping(venv / "lib/one.so"))
        (venv / "lib/one.so").rename(venv / "lib/was-one")
        user = found(venv, pid)
        assert user is not None
        assert user.maps == ("lib/was-one",)

    def test_environment_renamed(self, base: Path, venv: Path, start: Start) -> None:
        """An environment that was moved as a whole takes its users with it."""
        pid = start(mapping(venv / "lib/one.so"))
        venv.rename(base / "moved")
        assert found(base / "moved", pid) is not None
        assert found(venv, pid) is None

    def test_deleted(self, venv: Path, start: Start) -> None:
        """A file that was deleted while mapped still counts, and is named so."""
        pid = start(mapping(venv / "lib/one.so"))
        (venv / "lib/one.so").unlink()
        user = found(venv, pid)
        assert user is not None
        assert user.maps[0].endswith("one.so (deleted)")

    def test_replaced(self, venv: Path, start: Start) -> None:
        """Who maps the old file after a new one took its name is a user."""
        pid = start(mapping(venv / "lib/one.so"))
        (venv / "lib/new.so").write_bytes(b"y" * 5000)
        (venv / "lib/new.so").replace(venv / "lib/one.so")
        assert found(venv, pid) is not None

    def test_checkout_libraries(self, base: Path, venv: Path, start: Start) -> None:
        """Libraries in the checkout count, data and other environments in it do not."""
        checkout = base / "checkout"
        for name in ("vllm/_C.abi3.so", "data.bin", ".other/lib/two.so"):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes(b"x" * 5000)
        (checkout / ".other/pyvenv.cfg").touch()
        library = start(mapping(checkout / "vllm/_C.abi3.so"))
        data = start(mapping(checkout / "data.bin"))
        other = start(mapping(checkout / ".other/lib/two.so"))
        user = found(venv, library, checkout)
        assert user is not None
        assert user.maps == ("vllm/_C.abi3.so",)
        assert found(venv, data, checkout) is None
        assert found(venv, other, checkout) is None

    def test_source_text(self, venv: Path, start: Start) -> None:
        """A search tool that maps a source file to read it does not block a build."""
        (venv / "lib/one.py").write_text("x = 1\n" * 1000)
        assert found(venv, start(mapping(venv / "lib/one.py"))) is None


class TestMounts:
    """Mounts give a file other paths, and other processes other mounts."""

    def test_bind_mount(self, base: Path, venv: Path, start: Start) -> None:
        """A bind mount in our own namespace does not hide it, not even when deleted."""
        needs_root()
        alias = base / "alias"
        alias.mkdir()
        done = subprocess.run(["mount", "--bind", venv / "lib", alias], check=False)
        if done.returncode:
            pytest.skip("this user may not mount")
        try:
            os.link(venv / "lib/one.so", venv / "lib/linked.so")
            single = start(mapping(alias / "one.so"))
            assert found(venv, single) is not None
            (venv / "lib/one.so").unlink()
            (venv / "lib/linked.so").unlink()
            assert found(venv, single) is not None
        finally:
            subprocess.run(["umount", "-l", alias], check=True)

    @pytest.mark.parametrize("fate", ["kept", "linked", "deleted"])
    def test_another_namespace(
        self, base: Path, venv: Path, start: Start, fate: str
    ) -> None:
        """A container that has the environment at another path is seen."""
        needs_mounts()
        alias = base / "inside"
        alias.mkdir()
        pid = start(
            ["unshare", "-m", "--propagation", "private", sys.executable, "-I", "-c"]
            + [BIND_AND_MAP, venv, alias, alias / "lib/one.so", MAP]
        )
        assert not (alias / "lib").exists()
        if fate == "linked":
            os.link(venv / "lib/one.so", base / "cached.so")
        if fate == "deleted":
            (venv / "lib/one.so").unlink()
        assert found(venv, pid) is not None

    def test_same_path_elsewhere(self, base: Path, venv: Path, start: Start) -> None:
        """A container with another environment at the same path is none of ours."""
        needs_mounts()
        other = base / "other"
        (other / "lib").mkdir(parents=True)
        (other / "lib/one.so").write_bytes(b"z" * 5000)
        pid = start(
            ["unshare", "-m", "--propagation", "private", sys.executable, "-I", "-c"]
            + [BIND_AND_MAP, other, venv, venv / "lib/one.so", MAP]
        )
        assert found(venv, pid) is None
        assert found(other, pid) is not None

    def test_other_file_system(self, base: Path, venv: Path, start: Start) -> None:
        """An environment on a file system of its own is known by that device."""
        needs_root()
        disk = base / "disk"
        disk.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False
        )
        if made.returncode:
            pytest.skip("this user may not mount")
        try:
            (disk / "one.so").write_bytes(b"x" * 5000)
            pid = start(mapping(disk / "one.so"))
            assert found(disk, pid) is not None
            assert found(venv, pid) is None
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def test_overlay(self, base: Path, start: Start) -> None:
        """On an overlay the device is the one of maps, whatever stat says."""
        needs_root()
        for name in ("lower", "upper", "work", "merged"):
            (base / "o" / name).mkdir(parents=True)
        (base / "o/lower/one.so").write_bytes(b"x" * 5000)
        top = base.rename(base.with_name("rig-guard-overlay"))
        try:
            o = top / "o"
            options = f"lowerdir={o}/lower,upperdir={o}/upper,workdir={o}/work"
            made = subprocess.run(
                ["mount", "-t", "overlay", "none", o / "merged", "-o", options],
                check=False,
                capture_output=True,
            )
            if made.returncode:
                pytest.skip("no overlay mounts here")
            try:
                pid = start(mapping(o / "merged/one.so"))
                assert found(o / "merged", pid) is not None
            finally:
                subprocess.run(["umount", "-l", o / "merged"], check=True)
        finally:
            top.rename(base)


class TestInterpreter:
    """A Python of the environment maps nothing of it and still counts."""

    @pytest.fixture
    def real(self, base: Path) -> Path:
        """Give a real environment."""
        folder = base / "real"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", folder], check=True
        )
        return folder

    def test_article(self, real: Path, start: Start) -> None:
        """The sleeping Python of the article is a user, named with its command."""
        pid = start([real / "bin/python", "-c", WAIT])
        user = found(real, pid)
        assert user is not None
        assert user.maps == ()
        assert user.command == f"{real}/bin/python -c {WAIT}"

    def test_through_the_link(self, base: Path, real: Path, start: Start) -> None:
        """It counts when it was started through a link that we are not told about."""
        (base / "signpost").symlink_to(real)
        pid = start([base / "signpost/bin/python", "-c", WAIT])
        assert found(real, pid) is not None

    def test_from_the_path(self, real: Path, start: Start) -> None:
        """It counts when it was found on the PATH, also without VIRTUAL_ENV."""
        path = f"{real}/bin:{os.environ['PATH']}"
        pid = start(
            ["python", "-c", WAIT], executable=real / "bin/python", env={"PATH": path}
        )
        assert found(real, pid) is not None

    def test_relative(self, real: Path, start: Start) -> None:
        """It counts when it was started by a relative path."""
        pid = start(["bin/python", "-c", WAIT], cwd=real)
        user = found(real, pid)
        assert user is not None
        assert "was started as bin/python" in user.why
        assert f"works in {real}" in user.why

    def test_virtual_env(self, real: Path, start: Start) -> None:
        """A Python with VIRTUAL_ENV counts, unless another environment started it."""
        base_python = os.path.realpath(sys.executable)
        env = {"VIRTUAL_ENV": str(real)}
        assert found(real, start([base_python, "-c", WAIT], env=env)) is not None
        second = real.parent / "second"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", second], check=True
        )
        pid = start([second / "bin/python", "-c", WAIT], env=env)
        assert found(real, pid) is None
        assert found(second, pid) is not None

    def test_copied_interpreter(self, base: Path, start: Start) -> None:
        """An environment with a copy of the interpreter is seen by its program."""
        folder = base / "copied"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", "--copies", folder],
            check=True,
        )
        pid = start([folder / "bin/python", "-c", WAIT])
        user = found(folder, pid)
        assert user is not None
        assert any(name.startswith("bin/python") for name in user.maps)


class TestInnocent:
    """Nobody is stopped for having a path in his arguments."""

    def test_editor(self, venv: Path, start: Start) -> None:
        """A program that holds a file open and names it does not count."""
        code = "import sys, time; f = open(sys.argv[1]); print('ready', flush=True)"
        pid = start(
            [sys.executable, "-I", "-c", code + "; time.sleep(99)", venv / "lib/one.so"]
        )
        assert found(venv, pid) is None

    def test_activated_shell(self, venv: Path, start: Start) -> None:
        """A shell in an activated environment is no Python and does not count."""
        env = {**os.environ, "VIRTUAL_ENV": str(venv)}
        pid = start(["sh", "-c", "echo ready; read x; exit"], env=env)
        assert found(venv, pid) is None

    def test_itself(self, venv: Path) -> None:
        """The process that asks, and those that started it, are left out."""
        code = (
            "import mmap, sys; from pathlib import Path\n"
            "from tools.rig.guard.scan import scan\n"
            "from tools.rig.guard.targets import Targets\n"
            "f = open(sys.argv[1] + '/lib/one.so', 'rb')\n"
            "held = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n"
            "sys.exit(len(scan(Targets.of(Path(sys.argv[1]))).users))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, venv], check=False)
        assert done.returncode == 0


class TestOthers:
    """Processes of other users, seen by root and by an ordinary user."""

    def test_named_by_root(self, venv: Path, start: Start) -> None:
        """Root sees what a process of another user maps, and names the user."""
        needs_root()
        # the modules are loaded first: nobody may not read every interpreter
        rights = f"os.setgid({NOBODY}); os.setuid({NOBODY})"
        code = f"import mmap, os, sys, time\n{rights}\n{MAP}"
        pid = start([sys.executable, "-I", "-c", code, venv / "lib/one.so"])
        user = found(venv, pid)
        assert user is not None
        assert user.user == "nobody"

    def test_suspected_by_a_user(self, venv: Path, start: Start) -> None:
        """What may not be looked into blocks by its command or its GPU, or is unknown.

        Here an ordinary user looks at processes of root.
        """
        needs_root()
        python = os.path.realpath(sys.executable)
        mapped = start(mapping(venv / "lib/one.so"))
        on_gpu = start([python, "-I", "-c", WAIT])
        named = start([venv / "bin/python", "-c", WAIT], executable=python)
        editor = start([python, "-I", "-c", WAIT, venv / "lib/one.so"])
        result = as_nobody(
            lambda: asdict(scan(Targets.of(venv), gpu_pids=lambda: {on_gpu}))
        )
        assert {user["pid"] for user in result["suspects"]} == {on_gpu, named}
        assert not {user["pid"] for user in result["users"]} & {mapped, editor}
        assert result["unknown"] >= 2

    def test_kernel_threads(self, venv: Path, start: Start) -> None:
        """What has no memory is not counted as unknown, for a user either.

        One process of root is started, since in a small container all others may
        be this test's own parents, which the scan leaves out.
        """
        needs_root()
        start([os.path.realpath(sys.executable), "-I", "-c", WAIT])
        result = as_nobody(lambda: asdict(scan(Targets.of(venv))))
        with_memory = [
            entry
            for entry in os.listdir("/proc")
            if entry.isdigit() and os.path.lexists(f"/proc/{entry}/exe")
        ]
        assert 0 < result["unknown"] <= len(with_memory)


class TestGate:
    """The refusal as a user meets it."""

    def test_refuses(self, venv: Path, start: Start) -> None:
        """One line a process, one sentence, exit code 4."""
        pid = start(mapping(venv / "lib/one.so"))
        with pytest.raises(InUseError) as caught:
            gate.guard(Console(), venv, None, force=False)
        lines = caught.value.lines()
        assert caught.value.code == ExitCode.IN_USE
        assert lines[0].startswith(f"{pid} {sys.executable} ")
        assert lines[-1] == (
            "rebuild-sm70-v100: the above process(es) are running from "
            f"{venv}; stop them first, or set ONECAT_FORCE=1 to build anyway"
        )

    def test_forced(self, venv: Path, start: Start) -> None:
        """ONECAT_FORCE=1 goes on and names them all the same."""
        pid = start(mapping(venv / "lib/one.so"))
        result = gate.guard(Console(), venv, None, force=True)
        assert pid in {user.pid for user in result.users}


def test_started_by_the_link_before_a_switch(tmp_path: Path) -> None:
    """A process belongs to what the link led to when it was started."""
    town = Town(tmp_path)
    code = "print(1, flush=True); import time; time.sleep(600)"
    argv = [str(town.link / "bin/python"), "-S", "-c", code]

    def generation(name: str) -> Path:
        folder = town.generation(name).folder
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to(sys.executable)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        switch.switch(town.root, PLACE, generations.read(folder))
        # who is started in the moment of a switch counts for both
        time.sleep(1.2)
        return folder

    def users(venv: Path) -> list[int]:
        return [user.pid for user in scan(Targets.of(venv)).users]

    with contextlib.ExitStack() as stack:
        folders, pids = [], []
        for name in ("1", "2", "3"):
            folders.append(generation(name))
            proc = stack.enter_context(
                subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(proc.kill)
            assert proc.stdout is not None and proc.stdout.readline() == "1\n"
            pids.append(proc.pid)
        assert [users(folder) for folder in folders] == [[pid] for pid in pids]
        assert users(town.link) == pids[2:]
