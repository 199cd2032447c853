# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A switch is all or nothing, after whichever file operation it is stopped."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import power
from tests.rig.support.places import PLACE, Town
from tools.rig.base.errors import StepFailed
from tools.rig.builds import switch
from tools.rig.builds.files import Files
from tools.rig.builds.generation import Generation, read

OLD = {"pkg/_C.so": "old C", "pkg/gone/x.so": "old x"}
NEW = {"pkg/_C.so": "new C" * 99, "fresh/folder/y.so": "new y", "pkg/z.so": "new z"}
MOST = 80


@dataclass
class Case:
    """A town before a switch, and the generation to switch to."""

    town: Town
    to: Generation
    exchange: bool = True

    def go(self, files: Files) -> None:
        """Switch."""
        if not self.town.link.is_symlink():
            # a folder of an earlier version is kept under its date
            os.utime(self.town.link, (0, 0))
        switch.switch(self.town.root, PLACE, self.to, files=files)

    def settle(self, files: Files | None = None) -> str:
        """Do what the next command does first."""
        return switch.settle(self.town.root, PLACE, files=files)


def forward(top: Path) -> Case:
    """Make the next editable generation: libraries come, change and go."""
    town = Town(top)
    one, two = town.generation("1-old", OLD), town.generation("2-new", NEW)
    switch.switch(town.root, PLACE, one)
    return Case(town, two)


def back(top: Path) -> Case:
    """Make the way back."""
    case = forward(top)
    switch.switch(case.town.root, PLACE, case.to)
    return Case(case.town, read(case.town.home / "1-old"))


def first(top: Path) -> Case:
    """Make the first generation, where an earlier version left a folder."""
    town = Town(top)
    for path, text in OLD.items():
        (town.checkout / path).parent.mkdir(exist_ok=True)
        (town.checkout / path).write_text(text)
    case = Case(town, town.generation("2-new", NEW))
    town.environment(town.link, "before")
    return case


def first_by_hand(top: Path) -> Case:
    """Make the same where two names cannot change places in one step."""
    case = first(top)
    case.exchange = False
    return case


def wheels(top: Path) -> Case:
    """Make the way from wheel to wheel: the link alone."""
    town = Town(top)
    one, two = town.generation("1-old"), town.generation("2-new")
    switch.switch(town.root, PLACE, one)
    return Case(town, two)


@pytest.fixture(params=[forward, back, first, first_by_hand, wheels])
def make(request: pytest.FixtureRequest) -> Callable[[Path], Case]:
    """Return what sets one of the scenes up."""
    found: Callable[[Path], Case] = request.param
    return found


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where that can be: a disk writes at each rename."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="rig-switch-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save time: what a power cut loses is reckoned, not tried."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def each(
    tmp_path: Path, make: Callable[[Path], Case]
) -> Iterator[tuple[int, Case, dict[str, Any], dict[str, Any]]]:
    """Yield N, the case set up anew, how it looks before and how it will look after."""
    top = tmp_path / "town"
    top.mkdir()
    case = make(top)
    start = power.Disk(top)
    before = case.town.view()
    case.go(power.Layer(case.exchange))
    after = case.town.view()
    for number in range(1, MOST):
        start.lay_out(start.names)
        yield number, case, before, after
    pytest.fail("it never came to an end")


def goes_on(case: Case, after: dict[str, Any]) -> None:
    """Check that nothing is left to do, and that the next switch works."""
    assert case.settle() == ""
    case.go(Files())
    seen = case.town.view()
    assert {**seen, "note": None} == {**after, "note": None}


class TestEveryOperation:
    """Operation N is the last one, for every N."""

    @pytest.mark.parametrize("torn", [False, True])
    def test_power_off(
        self, tmp_path: Path, make: Callable[[Path], Case], torn: bool
    ) -> None:
        """The process is gone: settle() gives the old or the new, whole."""
        seen = set()
        for number, case, before, after in each(tmp_path, make):
            try:
                case.go(power.FailingFiles(number, case.exchange, torn))
            except power.PowerOff:
                if case.exchange:
                    assert (case.town.link / "env.txt").is_file(), number
                seen.add(case.settle())
                assert case.town.view() in (before, after), number
                goes_on(case, after)
            else:
                assert case.town.view() == after
                break
        assert seen == {"", "undone", "finished"}

    @pytest.mark.parametrize("survives", ["lost", "kept", 1, 2])
    def test_power_cut(
        self, tmp_path: Path, make: Callable[[Path], Case], survives: str | int
    ) -> None:
        """Names and contents that were not flushed are lost, all or some of them."""
        for number, case, before, after in each(tmp_path, make):
            disk = power.Disk(case.town.top)
            choice = (
                power.some(number * 10 + survives)
                if isinstance(survives, int)
                else getattr(power, survives)
            )
            try:
                case.go(power.PowerCut(number, disk, case.exchange))
            except power.PowerOff:
                disk.lay_out(disk.after_cut(choice))
                case.settle()
                assert case.town.view() in (before, after), number
                goes_on(case, after)
            else:
                disk.lay_out(disk.after_cut(choice))
                assert case.settle() in ("", "finished")
                assert case.town.view() == after, "a switch that is done is done"
                break

    @pytest.mark.parametrize("stays", [False, True])
    def test_full_disk(
        self, tmp_path: Path, make: Callable[[Path], Case], stays: bool
    ) -> None:
        """A disk that fills up is a message; what is in force works or is finished."""
        for number, case, before, after in each(tmp_path, make):
            files = power.FullDisk(number, stays=stays, exchange=case.exchange)
            try:
                case.go(files)
            except StepFailed as exc:
                assert "No space left" in exc.what, number
                case.settle()
                assert case.town.view() in (before, after), number
                goes_on(case, after)
            else:
                case.settle()
                assert case.town.view() == after, number
                if files.count < number:
                    break

    @pytest.mark.parametrize("make", [forward, first_by_hand])
    def test_settling_is_cut(
        self, tmp_path: Path, make: Callable[[Path], Case]
    ) -> None:
        """Killed, then cut while that is made good, and settled: all or none."""
        for number, case, before, after in each(tmp_path, make):
            start = power.Disk(case.town.top)
            for again in range(1 + number % 2, MOST, 2):
                start.lay_out(start.names)
                disk = power.Disk(case.town.top)
                try:
                    case.go(power.PowerCut(number, disk, case.exchange))
                except power.PowerOff:
                    # killed: the names are there, though the disk may not know them
                    try:
                        case.settle(power.PowerCut(again, disk, case.exchange))
                    except power.PowerOff:
                        disk.lay_out(disk.after_cut(power.some(number * again)))
                        case.settle()
                        assert case.town.view() in (before, after), (number, again)
                    else:
                        break
                else:
                    return

    def test_giving_up_is_cut(self, tmp_path: Path) -> None:
        """The first rename is refused, and taking the rest back is stopped."""

        class Refused(power.PowerCut):
            def before(self, name: str, path: Path) -> None:
                super().before(name, path)
                if name == "rename" and path.name == f".{PLACE}.rig-new":
                    raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

        for number, case, before, after in each(tmp_path, forward):
            disk = power.Disk(case.town.top)
            files = Refused(number, disk)
            with pytest.raises((power.PowerOff, StepFailed)):
                case.go(files)
            if files.count < number:
                assert case.town.view() == before
                break
            disk.lay_out(disk.after_cut(power.some(number)))
            case.settle()
            assert case.town.view() in (before, after), number
