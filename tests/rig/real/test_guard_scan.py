# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan against real processes that reach our files in every way there is."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.rig.support.guarded import MAP, WAIT, Start, found, mapping
from tests.rig.support.guarded import base as base
from tests.rig.support.guarded import start as start
from tests.rig.support.guarded import venv as venv
from tests.rig.support.nobody import NOBODY, as_nobody, needs_root
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, InUseError
from tools.rig.guard import gate
from tools.rig.guard.scan import scan
from tools.rig.guard.targets import Targets

pytestmark = pytest.mark.real


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

    def test_other_environment(self, base: Path, venv: Path, start: Start) -> None:
        """VLLM by another environment's Python is unknown to a user; by ours, not."""
        needs_root()
        python = Path(os.path.realpath(sys.executable))
        (base / "vllm").mkdir()
        (base / "vllm/serve.py").write_text(WAIT)
        pids = []
        for folder in (base / "venvs/two", venv):
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "bin/python").symlink_to(python)
            (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
            argv = [folder / "bin/python", "-m", "vllm.serve"]
            pids.append(start(argv, cwd=base))
        result = as_nobody(lambda: asdict(scan(Targets.of(venv))))
        suspects = {user["pid"] for user in result["suspects"]}
        assert suspects & set(pids) == {pids[1]} and result["unknown"]

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
