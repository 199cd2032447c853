# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Commands of a user to whom somebody else's folders are closed."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.nobody import as_nobody, needs_root
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed
from tools.rig.base.report import run_command
from tools.rig.base.state import StateRoot
from tools.rig.steps import commands, report, verify

pytestmark = pytest.mark.real

Task = Callable[[Console], Any]


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a closed state root of root's with a checkout in it."""
    needs_root()
    assert verify is not None
    with tempfile.TemporaryDirectory(prefix="rig-closed-") as name:
        Path(name).chmod(0o755)
        root = Path(name, "root")
        (root / "venvs").mkdir(parents=True)
        (root / "src").mkdir()
        (root / "src" / "pyproject.toml").write_text('[project]\nname = "rig-sample"\n')
        root.chmod(0o700)
        home = Path(name, "home")
        home.mkdir()
        os.chown(home, 65534, 65534)
        monkeypatch.setenv("HOME", str(home))
        for name in [n for n in os.environ if n.startswith(("ONECAT_", "XDG_"))]:
            monkeypatch.delenv(name)
        monkeypatch.chdir("/")
        yield root


def asked(task: Task) -> tuple[int, str]:
    """Return how a command of nobody's ends, and what it says."""

    def work() -> tuple[int, str]:
        out = io.StringIO()
        return run_command(task, console=Console(out, {})), out.getvalue()

    code, said = as_nobody(work)
    return int(code), str(said)


@pytest.mark.parametrize("name", ["verify", "in_use", "builds"])
def test_root(theirs: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A closed state root is told as one, with its owner."""
    monkeypatch.setenv("ONECAT_LOCAL_ROOT", str(theirs))
    code, said = asked(getattr(commands, name))
    assert code == 3, said
    assert f"{theirs} belongs to root and is closed to you" in said
    assert "hint: " in said and "bug" not in said


@pytest.mark.parametrize("name", ["verify", "in_use"])
def test_source(theirs: Path, name: str) -> None:
    """So is a checkout, which is not said to be missing."""
    step = getattr(commands, name)
    code, said = asked(lambda console: step(console, source=str(theirs / "src")))
    assert code == 3, said
    assert "belongs to root and is closed to you" in said
    assert "hint: take a checkout that you may read" in said


def test_output(theirs: Path) -> None:
    """A page cannot be written into a folder that is closed, which is a message."""
    out = io.StringIO()
    record = {"id": "1", "result": "done"}
    home = Path(os.environ["HOME"])

    def work() -> str:
        with pytest.raises(StepFailed) as caught:
            report.report(
                Console(out, {}), record, None, StateRoot(home), theirs / "page.html"
            )
        return caught.value.what

    assert as_nobody(work) == f"cannot write {theirs / 'page.html'}: Permission denied"
