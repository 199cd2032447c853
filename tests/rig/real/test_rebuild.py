# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The one command and nox around the tasks: exit codes, and signals to a single pid."""

from __future__ import annotations

import os
import signal
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
