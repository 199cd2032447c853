# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which environment a process runs that was started by the link to the one in force.

The link is all that its command line tells, and by now that may lead elsewhere. So each
switch notes when it was made, in ticks since boot as the kernel counts the start of a
process: a clock that is set back changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import StepFailed
from tools.rig.base.state import home_of, read_json
from tools.rig.guard.signs import identity
from tools.rig.host import processes

STATE = "state.json"
"""Beside the generations of a place: what its last switches noted."""

MOST = 64
"""Switches of one boot that are kept."""

_TICKS = os.sysconf("SC_CLK_TCK")
_SLACK = _TICKS
"""Between the note of a switch and its renames; who starts then counts for both."""


@dataclass(frozen=True)
class Turn:
    """A switch: what came into force (empty: no generation), and when."""

    id: str
    boot: str
    tick: int


def taken(turns: Iterable[Turn], before: str, name: str) -> tuple[Turn, ...]:
    """Return the turns after a switch that is made now.

    Parameters
    ----------
    turns
        Those until now.
    before
        What is in force until now, where no turn tells it.
    name
        What comes.
    """
    boot = processes.boot_id()
    known = [*turns] or [Turn(before, "", 0)]
    here = [turn for turn in known if turn.boot == boot]
    earlier = [turn for turn in known if turn.boot != boot][-1:]
    tick = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
    return (*earlier, *here[-MOST:], Turn(name, boot, tick))


def parsed(data: Any) -> tuple[Turn, ...]:
    """Return the turns in a note of a switch; none in what an earlier version wrote.

    Raises
    ------
    ValueError, TypeError
        When they are no turns.
    """
    return tuple(Turn(str(name), str(boot), int(tick)) for name, boot, tick in data)


def dumped(turns: Iterable[Turn]) -> list[list[Any]]:
    """Return what :func:`parsed` reads."""
    return [[turn.id, turn.boot, turn.tick] for turn in turns]


@dataclass(frozen=True)
class Reign:
    """The times at which the link of a place led to one environment.

    ``home`` is the link, ``bin`` the identity of the programs that it leads to now, and
    ``now`` says whether they are this environment's own.
    """

    id: str
    home: bytes
    bin: tuple[int, int] | None
    now: bool
    turns: tuple[Turn, ...] = ()

    @classmethod
    def of(cls, environment: Path) -> Reign | None:
        """Return the reign of a generation or a bench; None for any other folder.

        Parameters
        ----------
        environment
            Its real path.
        """
        home = home_of(environment)
        if home == environment:
            return None
        is_bench = environment.parent.name == "benches"
        place = home.parent.parent / "generations" / home.name
        try:
            turns = parsed((read_json(place / STATE) or {}).get("turns") or ())
        except (StepFailed, AttributeError, TypeError, ValueError):
            # whoever needs the note for more than this says so
            turns = ()
        leads = os.path.realpath(home)
        name = os.path.basename(leads)
        in_force = name if os.path.dirname(leads) == str(place) else ""
        if turns and turns[-1].id != in_force:
            # an earlier version switched, and did not note it
            turns = ()
        return cls(
            "" if is_bench else environment.name,
            os.fsencode(home),
            identity(home / "bin"),
            leads == os.path.realpath(environment),
            turns,
        )

    def covers(self, start: int | None) -> bool:
        """Say whether a process that started then was led here by the link.

        Without notes the link is taken to have led where it leads now.

        Parameters
        ----------
        start
            Clock ticks since boot.
        """
        if not self.turns or start is None:
            return self.now
        boot = processes.boot_id()
        owners = {turn.id for turn in self.turns if turn.boot != boot}
        for turn in (turn for turn in self.turns if turn.boot == boot):
            if start > turn.tick + _SLACK:
                owners = {turn.id}
            elif start >= turn.tick:
                owners.add(turn.id)
        # one that is older than all notes may be anybody's
        return self.id in owners or not owners
