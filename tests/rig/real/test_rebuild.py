# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The one command and nox around the tasks: exit codes, streams, signals to one pid."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.fakenvcc import fake_nvcc
from tests.rig.support.workshop import Workshop, until
from tools.rig.builds.target import HERE
from tools.rig.guard.lock import BuildLock

pytestmark = pytest.mark.real

SCRIPT = str(HERE / "tools" / "rebuild-sm70-v100.sh")
NOX = str(HERE / "tools" / "nox")
TASK = [NOX, "-s", "task", "--"]


@pytest.fixture(scope="module")
def ready(shop: Workshop) -> Workshop:
    """Return the workshop, in which tools/nox has made its environment."""
    got = shop.run([NOX, "-l"])
    assert got.returncode == 0, got.stderr
    assert "* rebuild" in got.stdout or "- rebuild" in got.stdout
    return shop


@pytest.fixture
def due(ready: Workshop) -> Iterator[Workshop]:
    """Return the workshop with a closed gate before a compile that is due."""
    os.utime(ready.sample / "csrc" / "wide.cu")
    ready.gate.close()
    yield ready
    ready.gate.open()


def typed(shop: Workshop, *words: str, **env: str) -> tuple[int, str]:
    """Run the script, and return its exit code and what both its streams said."""
    got = shop.run([SCRIPT, *words], **env)
    return got.returncode, got.stdout + got.stderr


class TestExitCode:
    """nox knows only 0 and 1; the script says what the step said."""

    @pytest.mark.parametrize("words", [("--jobs", "many"), ("--nonsense",)])
    def test_usage(self, ready: Workshop, words: tuple[str, ...]) -> None:
        """A wrong command line ends with 2, also where Invoke itself refuses it."""
        code, said = typed(ready, *words)
        assert code == 2, said
        assert "hint: " in said and "Traceback" not in said

    @pytest.mark.parametrize("program", [NOX, SCRIPT])
    def test_a_folder_that_was_removed(self, tmp_path: Path, program: str) -> None:
        """A current folder that is gone is said to be so, before anything is made."""
        (tmp_path / "away").mkdir()
        words = f"cd {shlex.quote(str(tmp_path))}/away && rmdir ../away && {program} -l"
        got = subprocess.run(["sh", "-c", words], text=True, capture_output=True)
        assert got.returncode == 2, got.stderr
        assert "the current folder does not exist any more" in got.stderr

    def test_cannot(self, ready: Workshop, tmp_path: Path) -> None:
        """A CUDA_HOME with CUDA 13 alone ends with 3, and says what to change."""
        home = fake_nvcc(tmp_path / "cuda", release="13.0", sms=(75, 80, 90, 100))
        code, said = typed(ready, CUDA_HOME=str(home))
        assert code == 3, said
        assert "CUDA 13.0 cannot compile for sm_70" in said
        assert "unset CUDA_HOME" in said

    def test_locked(self, ready: Workshop) -> None:
        """While somebody holds the lock the script ends with 4."""
        with BuildLock(ready.environment, None, "somebody's build"):
            code, said = typed(ready)
        assert code == 4, said
        assert f"PID {os.getpid()} of " in said


class TestStreams:
    """What nobody can read changes nothing."""

    @pytest.mark.parametrize(
        "how", ["2>&-", "2>/dev/full", "<&- >&- 2>&-", ">/dev/full", "2>&1 | true"]
    )
    def test_exit_code(self, ready: Workshop, how: str) -> None:
        """The script ends in the code of the step, and nox in its own."""
        for words, code in (([SCRIPT, "--jobs", "many"], 2), ([*TASK, "builds"], 0)):
            line = f"set -o pipefail; {shlex.join(words)} {how}"
            got = ready.run(["bash", "-c", line])
            assert got.returncode == code, got.stderr
            assert "Traceback" not in got.stderr

    def test_data(self, ready: Workshop) -> None:
        """Data that a closed stdout did not take is a failure with its line."""
        line = f"{shlex.join(TASK)} builds --json >&-"
        got = ready.run(["bash", "-c", line])
        assert got.returncode == 1
        assert "cannot write the result to stdout" in got.stderr
        assert "Traceback" not in got.stderr


class TestBootstrap:
    """The environment of the task tools, and the checkout that tools/nox lies in."""

    @pytest.fixture
    def cache(self, ready: Workshop, tmp_path: Path) -> Iterator[Path]:
        """Return a cache that no other test uses, and whose environment is made."""
        cache = tmp_path / "cache"
        got = ready.run([NOX, "-l"], XDG_CACHE_HOME=str(cache))
        assert got.returncode == 0, got.stderr
        assert "once" in got.stderr
        yield cache
        shutil.rmtree(cache)

    def test_packages_gone(self, ready: Workshop, cache: Path) -> None:
        """An environment that lost a package, also one of nox's own, is made anew."""
        env = {"XDG_CACHE_HOME": str(cache)}
        assert ready.run([NOX, "-l"], **env).stderr == ""
        [package] = cache.glob("1cat-rig/tasks-*/lib/python3*/site-packages/colorlog")
        shutil.rmtree(package)
        got = ready.run([NOX, "-l"], **env)
        assert got.returncode == 0 and package.is_dir(), got.stderr
        assert "is not whole" in got.stderr

    def test_hint_can_be_typed(self, ready: Workshop, tmp_path: Path) -> None:
        """A checkout whose path holds a blank and a quote is quoted in hints."""
        checkout = tmp_path / "my rig's"
        checkout.mkdir()
        for name in ("tools", "tasks.py", "noxfile.py"):
            (checkout / name).symlink_to(HERE / name)
        nox = str(checkout / "tools" / "nox")
        path = os.pathsep.join(
            place
            for place in os.environ["PATH"].split(os.pathsep)
            if not os.path.exists(os.path.join(place, "invoke"))
        )
        words = [nox, "-s", "task", "--"]
        env = {"PATH": path, "ONECAT_LOCAL_ROOT": str(tmp_path / "root")}
        got = ready.run([*words, "verify"], **env)
        hints = [x for x in got.stderr.splitlines() if x.startswith("hint: ")]
        assert hints, got.stderr
        assert shlex.split(hints[0].removeprefix("hint: "))[:4] == words


class TestOnePid:
    """A supervisor signals one process; everything below it ends."""

    def test_script(self, due: Workshop) -> None:
        """SIGTERM to the script alone stops nox, the task and every compiler."""
        with due.started([SCRIPT], env={"CCACHE_DISABLE": "1"}) as proc:
            until(lambda: due.gate.reached or proc.poll() is not None, lambda: due.said)
            assert proc.poll() is None, due.said
            os.kill(proc.pid, signal.SIGTERM)
            assert proc.wait(60) == 130
            until(lambda: not due.processes(), lambda: str(due.processes()), 5)
        assert due.records()[-1]["result"] == "interrupted"
        assert due.imports() == "7.0"

    def test_script_killed(self, due: Workshop) -> None:
        """SIGKILL to the script, which can tell nobody any more, ends as much."""
        with due.started([SCRIPT], env={"CCACHE_DISABLE": "1"}) as proc:
            until(lambda: due.gate.reached or proc.poll() is not None, lambda: due.said)
            assert proc.poll() is None, due.said
            os.kill(proc.pid, signal.SIGKILL)
            proc.wait(60)
            until(lambda: not due.processes(), lambda: str(due.processes()), 30)
        assert due.records()[-1]["result"] == "interrupted"
        assert due.imports() == "7.0"

    def test_nox(self, due: Workshop) -> None:
        """SIGTERM to nox alone, which passes nothing on, stops the task below it."""
        argv = [NOX, "-s", "task", "--", "build-sm70"]
        with due.started(argv, env={"CCACHE_DISABLE": "1"}) as proc:
            until(lambda: due.gate.reached or proc.poll() is not None, lambda: due.said)
            assert proc.poll() is None, due.said
            os.kill(proc.pid, signal.SIGTERM)
            proc.wait(60)
            until(lambda: not due.processes(), lambda: str(due.processes()), 30)
        assert due.records()[-1]["result"] == "interrupted"
        assert due.imports() == "7.0"
