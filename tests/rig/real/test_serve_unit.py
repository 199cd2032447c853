# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The units that are written, read by systemd's own analyser."""

from __future__ import annotations

import io
import os
import pwd
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.unit_plans import HOSTILE, PLAN
from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.host import systemd
from tools.rig.host.systemd import Systemd
from tools.rig.serve import hardening, reach, unit_check
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.reach import Need
from tools.rig.serve.units import Launcher
from tools.rig.steps.serve_unit import Written, serve_unit

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _needs_analyser() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")


def somebody() -> str:
    """Return a user that is neither root nor nobody, which the analyser warns of."""
    names = [u.pw_name for u in pwd.getpwall() if 0 < u.pw_uid < 65534]
    if not names:
        pytest.skip("there is no ordinary user here")
    return names[0]


def program(folder: Path) -> Launcher:
    """Return a program that stands for an interpreter, where the analyser finds it."""
    folder.mkdir(parents=True)
    file = folder / "python"
    file.write_text("#!/bin/sh\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return Launcher((os.fspath(file), "-m", "invoke"), folder)


def written(
    folder: Path,
    plan: ServePlan = PLAN,
    *,
    user: bool = False,
    namespaces: bool = True,
    place: str = "checkout",
) -> Written:
    """Write the units of a plan and have them read."""
    return serve_unit(
        Console(io.StringIO(), {}),
        plan,
        StateRoot(folder / "state"),
        ["--model", os.fspath(plan.model), "--tp", "2"],
        ["--max-model-len", "4096"],
        start=program(folder / place),
        user=user,
        run_as="" if user else somebody(),
        output=folder / "units",
        env={"ONECAT_LOCAL_ROOT": "/data/rig 100%"},
        ask=lambda: Systemd(True, systemd.read().version, "" if namespaces else "no"),
    )


@pytest.mark.parametrize("user", [False, True], ids=["system", "user"])
@pytest.mark.parametrize(
    ("cards", "host"), [((0, 1), "0.0.0.0"), ((), "127.0.0.1")], ids=["cards", "none"]
)
def test_units_are_right_and_closed(
    tmp_path: Path, user: bool, cards: tuple[int, ...], host: str
) -> None:
    """The analyser finds no fault, and every service is exposed by 4.0 at most."""
    done = written(tmp_path, replace(PLAN, cards=cards, host=host), user=user)
    assert done.problems == ()
    assert len(done.files) == 3
    if not done.unknown:
        assert len(done.exposure) == 2
        assert max(done.exposure.values()) <= hardening.LIMIT


def test_without_namespaces(tmp_path: Path) -> None:
    """A user's units are right also where the kernel lets users make no namespaces."""
    done = written(tmp_path, user=True, namespaces=False)
    assert done.problems == ()
    assert any("closed in less" in note for note in done.notes)


@pytest.mark.parametrize("user", [False, True], ids=["system", "user"])
def test_words_arrive_as_they_are(tmp_path: Path, user: bool) -> None:
    """A program is found by a path with letters that units treat specially.

    The analyser looks whether each program of a unit is there.
    """
    plan = replace(PLAN, name=HOSTILE, model=tmp_path / HOSTILE)
    place = "mö del %h ; -5"
    assert written(tmp_path, plan, user=user, place=place).problems == ()


def test_quotes_in_the_path_of_the_program(tmp_path: Path) -> None:
    """A path that systemd does not take for a program is handed on by another one."""
    assert written(tmp_path, place=HOSTILE).problems == ()


def test_faults_are_told(tmp_path: Path) -> None:
    """What the analyser does not understand, or finds open, is a problem."""
    done = written(tmp_path)
    service = Path(next(f for f in done.files if f.endswith("qwen.service")))
    service.write_text(service.read_text().replace("KillMode=", "KilMode="))
    files = [Path(file) for file in done.files]
    told = unit_check.check(files, user=False, limit=0.1)
    assert any("KilMode" in problem for problem in told.problems)
    if not told.unknown:
        assert any("above 0.1" in problem for problem in told.problems)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask for another user")
def test_with_the_rights_of_another(tmp_path: Path) -> None:
    """A folder of root's is closed to nobody, and one that is open is not."""
    found = reach.with_rights_of(
        pwd.getpwuid(65534).pw_name,
        [Need(Path("/"), "rx"), Need(Path("/"), "wx"), Need(tmp_path, "wx")],
    )
    assert found is not None
    assert found[:2] == [None, "/"]
    assert found[2] is not None
