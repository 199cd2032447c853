# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step in-use and the gate before a build, with scans of our own making."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.rig.support.places import PLACE, Town
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, InUseError
from tools.rig.builds import generations, switch
from tools.rig.guard import gate
from tools.rig.guard.lock import BuildLock
from tools.rig.guard.scan import ScanResult, User
from tools.rig.guard.targets import Targets
from tools.rig.steps.in_use import in_use

VENV = Path("/srv/venvs/one")
ARTICLE = User(
    87221,
    1,
    "alice",
    f"{VENV}/bin/python -c import time; time.sleep(180)",
    why=(f"was started as {VENV}/bin/python",),
)
SERVER = User(90, 1, "bob", "vllm serve", maps=("lib/a.so", "lib/b.so", "lib/c.so"))
DOUBT = User(91, 1, "carol", "VLLM::Worker_TP0", why=("computes on a GPU",))

Look = Callable[[Targets], ScanResult]


def says(result: ScanResult) -> Look:
    """Return a scan that finds `result`."""
    return lambda targets: result


class TestGate:
    """Refusing, overriding, reporting."""

    def test_message(self) -> None:
        """The refusal is one line a process, then the sentence of the article."""
        out = io.StringIO()
        look = says(ScanResult(users=(ARTICLE,)))
        with pytest.raises(InUseError) as caught:
            gate.guard(Console(out), VENV, None, force=False, look=look)
        assert caught.value.code == ExitCode.IN_USE
        program, sentence = caught.value.lines()
        assert program == f"87221 {VENV}/bin/python -c import time; time.sleep(180)"
        assert sentence == (
            f"rebuild-sm70-v100: the above process(es) are running from {VENV}; "
            "stop them first, or set ONECAT_FORCE=1 to build anyway"
        )
        said = f"PID 87221 of alice: was started as {VENV}/bin/python"
        assert said in out.getvalue()

    def test_what_is_mapped(self) -> None:
        """The first file is named and the others are counted."""
        assert gate.reasons(SERVER) == "maps lib/a.so and 2 more"
        (line,) = gate.owner_lines(ScanResult(users=(SERVER,)))
        assert line == "PID 90 of bob: maps lib/a.so and 2 more"

    def test_suspect_blocks(self) -> None:
        """Who may be using it blocks, and is marked as a doubt."""
        out = io.StringIO()
        look = says(ScanResult(suspects=(DOUBT,)))
        with pytest.raises(InUseError) as caught:
            gate.guard(Console(out), VENV, None, force=False, look=look)
        assert caught.value.lines()[0] == "91 VLLM::Worker_TP0"
        assert "PID 91 of carol, perhaps: computes on a GPU" in out.getvalue()

    def test_long_command(self) -> None:
        """A command line of a thousand letters does not fill the screen."""
        user = User(5, 1, "dave", "x" * 1000, why=("works in /srv",))
        (line,) = gate.process_lines(ScanResult(users=(user,)))
        assert line == f"5 {'x' * 200}..."

    def test_forced(self) -> None:
        """ONECAT_FORCE=1 goes on, and what it overrides is shown."""
        out = io.StringIO()
        found = ScanResult(users=(ARTICLE,))
        result = gate.guard(Console(out), VENV, None, force=True, look=says(found))
        assert result == found
        assert "87221 /srv/venvs/one/bin/python" in out.getvalue()
        assert "ONECAT_FORCE=1: going on although" in out.getvalue()

    def test_patience(self) -> None:
        """The last processes of a killed build are given time to leave."""
        answers = [ScanResult(users=(ARTICLE,)), ScanResult()]
        out = io.StringIO()
        result = gate.guard(
            Console(out),
            VENV,
            None,
            force=False,
            patience=5,
            look=lambda targets: answers.pop(0),
        )
        assert result.free
        assert out.getvalue() == ""

    def test_free(self) -> None:
        """Nobody there: nothing is printed and the build goes on."""
        out = io.StringIO()
        gate.guard(Console(out), VENV, None, force=False, look=says(ScanResult()))
        assert out.getvalue() == ""

    def test_unknown(self) -> None:
        """What could not be seen is reported, and does not block."""
        out = io.StringIO()
        found = ScanResult(unknown=3, blind=("/proc hides the others",))
        gate.guard(Console(out), VENV, None, force=False, look=says(found))
        assert "3 process(es) of others may not be looked into" in out.getvalue()
        assert "/proc hides the others" in out.getvalue()

    def test_gpu_pids(self) -> None:
        """Pids of all cards are joined; without NVML there are none."""
        assert gate.gpu_pids(lambda: {0: (5, 6), 1: (6, 7)}) == {5, 6, 7}
        assert gate.gpu_pids(lambda: None) == set()

    def test_real(self, tmp_path: Path) -> None:
        """The default scan looks at this machine."""
        result = gate.guard(Console(io.StringIO()), tmp_path, None, force=False)
        assert result.free
        assert result.seconds > 0


class TestStep:
    """What in-use prints and returns."""

    def test_table(self, tmp_path: Path) -> None:
        """Users and suspects stand in one table, and the step returns them."""
        out = io.StringIO()
        found = ScanResult(users=(ARTICLE, SERVER), suspects=(DOUBT,), unknown=2)
        report = in_use(Console(out), tmp_path / "venv", None, look=says(found))
        lines = out.getvalue().splitlines()
        assert lines[0].split() == ["PID", "USER", "WHAT", "IT", "USES", "COMMAND"]
        assert lines[2].split()[:2] == ["90", "bob"]
        assert "perhaps: computes on a GPU" in lines[3]
        assert "2 process(es) of others" in lines[4]
        venv = tmp_path / "venv"
        said = f"2 process(es) use {venv}, 1 process(es) may use it"
        assert said in lines[5]
        assert not report.free

    def test_doubt(self, tmp_path: Path) -> None:
        """Who only may use it is not said to do so."""
        out = io.StringIO()
        venv = tmp_path / "venv"
        in_use(Console(out), venv, None, look=says(ScanResult(suspects=(DOUBT,))))
        assert f"1 process(es) may use {venv}" in out.getvalue()

    def test_free(self, tmp_path: Path) -> None:
        """Nobody uses it: one line, and refusing does nothing."""
        out = io.StringIO()
        report = in_use(
            Console(out), tmp_path / "venv", tmp_path, look=says(ScanResult())
        )
        assert "nobody is seen using" in out.getvalue()
        assert report.free
        assert json.loads(json.dumps(asdict(report)))["builder"] is None

    def test_only_if_used(self, tmp_path: Path) -> None:
        """What is not worth a word is said nothing of, until somebody uses it."""
        out = io.StringIO()
        look = says(ScanResult(unknown=2))
        in_use(Console(out), tmp_path / "v", None, only_if_used=True, look=look)
        assert out.getvalue() == ""
        look = says(ScanResult(users=(SERVER,)))
        in_use(Console(out), tmp_path / "v", None, only_if_used=True, look=look)
        assert "1 process(es) use" in out.getvalue()

    def test_building(self, tmp_path: Path) -> None:
        """A build that runs is named with its lock and its lease."""
        out = io.StringIO()
        (tmp_path / "fork").mkdir()
        with BuildLock(tmp_path / "venv", tmp_path / "fork", "first"):
            report = in_use(
                Console(out),
                tmp_path / "venv",
                tmp_path / "fork",
                look=says(ScanResult()),
            )
        assert report.builder is not None
        assert report.lessee is not None
        assert not report.free
        assert out.getvalue().count(": first") == 2

    def test_older(self, tmp_path: Path) -> None:
        """Who runs from a build that is not in force any more is named with it."""
        town = Town(tmp_path)
        for name in ("1", "2"):
            switch.switch(town.root, PLACE, town.generation(name))
        (town.home / generations.STATE).write_text("broken")
        town.environment(town.root.make(town.root.benches) / PLACE, "bench")
        out, asked = io.StringIO(), []

        def look(targets: Targets) -> ScanResult:
            asked.append(targets.venv.name)
            old = (SERVER,) if targets.venv.name == "1" else ()
            # a sign that speaks for all is told once
            return ScanResult(users=old, suspects=(DOUBT,))

        report = in_use(Console(out), town.link, None, look=look)
        assert asked == ["2", "1", PLACE]
        assert list(report.older) == ["1"] and not report.free
        assert report.older["1"].users == (SERVER,)
        said = out.getvalue()
        assert f"  1: maps {SERVER.maps[0]} and 2 more" in said
        assert "1 process(es) use what is not in force there any more" in said
        assert json.loads(json.dumps(asdict(report)))["older"]["1"]["users"]
        asked.clear()
        with BuildLock(town.link, None, "a build, whose compilers are in the bench"):
            in_use(Console(out), town.link, None, look=look)
        assert asked == ["2", "1"]
