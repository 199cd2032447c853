# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The rules that conftest.py sets for unit tests hold, seen from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

TESTS = """
import os, subprocess
from pathlib import Path
import pytest

def test_swallowed():
    with pytest.raises(AssertionError):
        subprocess.run(["true"])

def test_system():
    with pytest.raises(AssertionError):
        os.system("true")

def test_fork():
    with pytest.raises(AssertionError):
        os.fork()

@pytest.mark.allow_process
def test_allowed():
    assert subprocess.run(["true"]).returncode == 0

def test_fakes(fp):
    fp.register(["no-such-program"], stdout="x")
    assert subprocess.check_output(["no-such-program"]) == b"x"

def test_kill():
    with pytest.raises(ProcessLookupError):
        os.kill(os.getppid(), 15)
    os.kill(os.getpid(), 0)

def test_environment():
    assert Path.home() == Path(os.environ["XDG_CACHE_HOME"]).parent
    assert not list(Path.home().iterdir())
    for name in ("ONECAT_FORCE", "CUDA_HOME", "MAX_JOBS", "https_proxy"):
        assert name not in os.environ
"""


def test_accidents_fail_and_the_rest_passes(tmp_path: Path) -> None:
    """A start or fork that is swallowed fails all the same; fakes and leave do not."""
    (tmp_path / "unit").mkdir()
    (tmp_path / "real").mkdir()
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "unit" / "test_inside.py").write_text(TESTS)
    (tmp_path / "real" / "test_outside.py").write_text(
        "import os, subprocess\n"
        "def test_outside():\n"
        "    assert subprocess.run(['true']).returncode == 0\n"
        "    assert os.environ['MAX_JOBS'] == '7'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = allow_process: x\n")
    got = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rAE"],
        cwd=tmp_path,
        env={
            **os.environ,
            "ONECAT_FORCE": "1",
            "CUDA_HOME": "/x",
            "MAX_JOBS": "7",
            "https_proxy": "x",
        },
        capture_output=True,
        text=True,
    )
    lines = got.stdout.splitlines()
    failed = sorted(
        line.split("::")[1].split()[0] for line in lines if line.startswith("ERROR ")
    )
    passed = {line.split("::")[1] for line in lines if line.startswith("PASSED")}
    assert failed == ["test_fork", "test_swallowed", "test_system"], got.stdout
    assert passed >= {
        "test_allowed",
        "test_fakes",
        "test_kill",
        "test_environment",
        "test_outside",
    }
