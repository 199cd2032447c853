# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How much memory all compiles together may hold, and how that changes meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.rig.host import memory

MIB = 1 << 20
_FIXED_RESERVE = 512 * MIB
_PART_RESERVE = 1 / 16
_AFTER_KILL = 0.88
_PRESSED = 10.0
_CALM = 1.0
_LEAST_EASED = 0.7


def reserve(usable: int) -> int:
    """Return the bytes that compiles leave alone.

    Half a GiB for what is no compile: ninja, cmake and the service hold 150 MiB, forty
    launchers that wait 8 MiB each. A sixteenth of the rest is for the page cache, where
    the headers that every compile reads must stay, and for what is between two looks.
    """
    return min(usable // 2, _FIXED_RESERVE + int(usable * _PART_RESERVE))


def psi_some_avg10(file: Path = Path("/proc/pressure/memory")) -> float | None:
    """Return for how many percent of ten seconds some task waited for memory.

    None where the kernel does not say (before 4.20, or switched off).
    """
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = file.read_text().splitlines()
        words = next(line for line in lines if line.startswith("some")).split()
        pairs = (word.split("=") for word in words[1:])
        return next(float(value) for name, value in pairs if name == "avg10")
    return None


def _usable() -> int | None:
    return memory.read().usable or None


@dataclass
class Budget:
    """Bytes that all compiles together may hold.

    Parameters
    ----------
    start
        Bytes at the start; see :meth:`of_machine`.
    kept
        Bytes of that moment's usable memory that were left alone.
    usable
        Reads what may still be taken, in bytes, now; None where unknown.
    pressure
        Reads the memory pressure in percent; None where unknown.

    Attributes
    ----------
    factor
        What is left of `start` after compiles were killed for want of memory.
    eased
        What pressure leaves of it for the moment.
    room
        What the machine has for compiles when others' use is counted; None before the
        first look.
    psi
        The pressure at the last look.
    """

    start: int
    kept: int = 0
    usable: Callable[[], int | None] = _usable
    pressure: Callable[[], float | None] = psi_some_avg10
    factor: float = field(default=1.0, init=False)
    eased: float = field(default=1.0, init=False)
    room: int | None = field(default=None, init=False)
    psi: float | None = field(default=None, init=False)

    @classmethod
    def of_machine(
        cls,
        usable: Callable[[], int | None] = _usable,
        pressure: Callable[[], float | None] = psi_some_avg10,
    ) -> Budget:
        """Return the budget of this machine: what is usable now less a reserve.

        Unknown memory gives a budget of nothing, and so one compile at a time.
        """
        found = usable() or 0
        kept = reserve(found)
        return cls(found - kept, kept, usable, pressure)

    @property
    def bytes(self) -> int:
        """What compiles may hold now."""
        allowed = int(self.start * self.factor * self.eased)
        return max(0, allowed if self.room is None else min(allowed, self.room))

    @property
    def lowered(self) -> bool:
        """Whether less is allowed than at the start."""
        return self.bytes < self.start

    def correct(self, held: int) -> int:
        """Look at the machine again and return the bytes allowed now.

        Parameters
        ----------
        held
            Bytes that the running compiles hold by measure.

        Notes
        -----
        What usable memory lost beyond what compiles hold, others took. It counts again
        when they give it back, but the budget never grows above its start. Pressure
        lowers by a twentieth a look, and calm raises by a hundredth.
        """
        usable = self.usable()
        self.room = None if usable is None else usable - self.kept + held
        self.psi = self.pressure()
        if self.psi is not None and self.psi > _PRESSED:
            self.eased = max(_LEAST_EASED, self.eased - 0.05)
        elif self.psi is None or self.psi < _CALM:
            self.eased = min(1.0, self.eased + 0.01)
        return self.bytes

    def killed(self) -> int:
        """Lower the budget since a compile was killed for want of memory."""
        self.factor *= _AFTER_KILL
        return self.bytes
