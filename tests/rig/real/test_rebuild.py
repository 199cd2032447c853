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


class TestExitCode:
    """nox knows only 0 and 1; the script says what the step said.

    nox shows both streams of a step on its standard output.
    """

    @pytest.mark.parametrize("words", [("--jobs", "many"), ("--nonsense",)])
    def test_usage(self, ready: Workshop, words: tuple[str, ...]) -> None:
        """A wrong command line ends with 2, also where Invoke itself refuses it."""
        got = ready.run([SCRIPT, *words])
        assert got.returncode == 2, got.stdout
        assert "hint: " in got.stdout and "Traceback" not in got.stdout

    def test_cannot(self, ready: Workshop, tmp_path: Path) -> None:
        """A CUDA_HOME with CUDA 13 alone ends with 3, and says what to change."""
        home = fake_nvcc(tmp_path / "cuda", release="13.0", sms=(75, 80, 90, 100))
        got = ready.run([SCRIPT], CUDA_HOME=str(home))
        assert got.returncode == 3, got.stdout
        assert "CUDA 13.0 cannot compile for sm_70" in got.stdout
        assert "unset CUDA_HOME" in got.stdout

    def test_locked(self, ready: Workshop) -> None:
        """While somebody holds the lock the script ends with 4."""
        with BuildLock(ready.environment, None, "somebody's build"):
            got = ready.run([SCRIPT])
        assert got.returncode == 4, got.stdout
        assert f"PID {os.getpid()} of " in got.stdout


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
