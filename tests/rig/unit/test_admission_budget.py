# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How much memory all compiles together may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.builds.admission.budget import Budget, psi_some_avg10, reserve

GIB = 1 << 30
MIB = 1 << 20


class Machine:
    """A machine with so much usable memory and so much pressure."""

    def __init__(self, usable: int | None, pressure: float | None = 0.0) -> None:
        self.usable, self.pressure = usable, pressure

    def budget(self) -> Budget:
        """Return the budget at the start of a build."""
        return Budget.of_machine(lambda: self.usable, lambda: self.pressure)


def test_a_reserve_is_left() -> None:
    """Half a GiB and a sixteenth; of a tiny machine at most half."""
    assert reserve(32 * GIB) == 512 * MIB + 2 * GIB
    assert reserve(600 * MIB) == 300 * MIB
    budget = Machine(32 * GIB).budget()
    assert budget.bytes == 29 * GIB + 512 * MIB
    assert not budget.lowered


def test_unknown_memory_is_none() -> None:
    """Then one compile runs at a time."""
    assert Machine(None).budget().bytes == 0


def test_own_use_is_no_loss() -> None:
    """What compiles hold is missing from the machine and still theirs."""
    machine = Machine(32 * GIB)
    budget = machine.budget()
    machine.usable = 12 * GIB
    assert budget.correct(20 * GIB) == budget.start


def test_what_others_take_is_taken_off_and_given_back() -> None:
    """The budget follows other programs, and never grows above its start."""
    machine = Machine(32 * GIB)
    budget = machine.budget()
    machine.usable = 7 * GIB
    assert budget.correct(20 * GIB) == budget.start - 5 * GIB
    assert budget.lowered
    machine.usable = 40 * GIB
    assert budget.correct(20 * GIB) == budget.start
    machine.usable = 0
    assert budget.correct(0) == 0
    machine.usable = None
    assert budget.correct(0) == budget.start


def test_pressure_lowers_and_calm_raises_slowly() -> None:
    """Waiting for memory takes a twentieth a look, at most three tenths in all."""
    machine = Machine(32 * GIB, 40.0)
    budget = machine.budget()
    assert budget.correct(0) == int(budget.start * 0.95)
    for _ in range(20):
        budget.correct(0)
    assert budget.bytes == int(budget.start * 0.7)
    assert budget.psi == 40.0
    machine.pressure = 5.0
    assert budget.correct(0) == int(budget.start * 0.7)
    machine.pressure = None
    for _ in range(40):
        budget.correct(0)
    assert budget.bytes == budget.start


def test_a_kill_lowers_for_good() -> None:
    """After a compile was killed there is less, also when all is calm."""
    budget = Machine(32 * GIB).budget()
    assert budget.killed() == int(budget.start * 0.88)
    assert budget.correct(0) == int(budget.start * 0.88)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("some avg10=1.25 avg60=0.5 avg300=0 total=7\nfull avg10=9 avg60=0\n", 1.25),
        ("full avg10=9\n", None),
        ("some avg10=x\n", None),
        ("some total=7\n", None),
        ("", None),
    ],
)
def test_pressure_is_read(tmp_path: Path, text: str, value: float | None) -> None:
    """The first figure of the line of some tasks; none where it cannot be read."""
    file = tmp_path / "memory"
    assert psi_some_avg10(file) is None
    file.write_text(text)
    assert psi_some_avg10(file) == value
