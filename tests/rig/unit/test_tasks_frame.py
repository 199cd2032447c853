# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What every task does with its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.program import Program
from invoke.tasks import Task

from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError
from tools.rig.tasks import building, explaining, frame, preparing, serving


def test_exit_code_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script above nox reads the code of the step from a file."""
    file = tmp_path / "code"
    monkeypatch.setenv("RIG_EXIT_FILE", str(file))
    seen = []

    def body(console: Console) -> None:
        seen.append(file.read_text())
        raise InUseError("somebody builds", hint="wait")

    with pytest.raises(Exit) as caught:
        frame.do(body)
    assert caught.value.code == 4
    assert (seen, file.read_text()) == (["running\n"], "4\n")


def test_file_that_was_cleaned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that went well does not fail for want of a place to say so."""
    monkeypatch.setenv("RIG_EXIT_FILE", str(tmp_path / "gone" / "code"))
    frame.do(lambda console: None)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Leave Ctrl-C as it is: the file of tasks, once read, changes what it does."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


class Typed(Program):
    """Invoke with our reading of the command line."""

    parse_tasks = frame.need_values(frame.read_words(Program.parse_tasks))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("words", "empty"),
    [
        (["report", "--build", ""], "--build"),
        (["report", "--output="], "--output"),
        (["activate", "--build=", "--source", ""], "--build and --source"),
        (["install-wheel", ""], "--wheel"),
        (["doctor", "--only", "git", "--only", ""], "--only"),
        (["diagnose", "a.log", ""], "--log"),
        (["serve-tp2", "--api-key-file", "", "--model", "x"], "--api-key-file"),
    ],
)
def test_empty_values(
    words: list[str],
    empty: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An option that is given with nothing in it is wrong usage, of whatever task."""
    sides = (building, explaining, preparing, serving)
    every = [one for side in sides for one in vars(side).values()]
    tasks = [one for one in every if isinstance(one, Task)]
    invoke = Typed(namespace=Collection(*dict.fromkeys(tasks)))
    with pytest.raises(SystemExit) as caught:
        invoke.run(["invoke", *words, "--json"])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    said = f"{words[0]}: nothing is given for {empty}"
    assert json.loads(out)["error"]["what"] == said
    assert err.startswith(f"error: {said}\n")


ROOT = Path(__file__).parents[3]
_EARLY = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from invoke.main import program
from invoke.program import Program
from tools.rig.base import console

def press(*args, **how):
    os.kill(os.getpid(), signal.SIGINT)

if sys.argv[2] == "before":
    Program.update_config = press
elif sys.argv[2] == "while":
    console.Console.say = press
else:
    from tools.rig.base import report
    real = report.run_command
    report.run_command = lambda *args, **how: (real(*args, **how), press())
program.run(["invoke", "--search-root", sys.argv[1], "serve-status"])
"""


@pytest.mark.allow_process
@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_ctrl_c_is_never_a_failure(tmp_path: Path, when: str) -> None:
    """Whenever it comes once the tasks are read, it ends with 130 and is told."""
    file = tmp_path / "code"
    done = subprocess.run(
        [sys.executable, "-B", "-c", _EARLY, ROOT, when],
        env={
            "HOME": os.fspath(tmp_path),
            "ONECAT_LOCAL_ROOT": os.fspath(tmp_path / "root"),
            "RIG_EXIT_FILE": os.fspath(file),
            "PATH": os.environ["PATH"],
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=_hears,
    )
    assert done.returncode == 130
    assert file.read_text() == "130\n"
    if when != "while":
        assert done.stderr.endswith("error: interrupted\n")
    assert "Traceback" not in done.stderr


def _hears() -> None:
    # a test run in the background ignores it, and so would the child
    signal.signal(signal.SIGINT, signal.default_int_handler)
