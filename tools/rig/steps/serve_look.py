# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The look of a unit's timer: does the server hang, and may it be restarted now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tools.rig.base.console import Console, duration
from tools.rig.base.errors import ExitCode
from tools.rig.base.state import StateRoot
from tools.rig.serve import hangs
from tools.rig.serve import record as records
from tools.rig.serve.look import ServerStatus, look
from tools.rig.serve.states import State
from tools.rig.serve.unit_text import LOOK_S

AGAIN_S = 5.0
"""Seconds between the two looks that both must find it hung."""


@dataclass(frozen=True)
class Looked:
    """What the look found.

    ``restart`` says whether it should be restarted now; then, and only then, the exit
    code is 0, which is what ``ExecCondition=`` goes by.
    """

    name: str
    state: str
    reason: str
    restart: bool

    @property
    def exit_code(self) -> int:
        """0 to restart it, 1 to let it be."""
        return ExitCode.OK if self.restart else ExitCode.FAILED

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def serve_look(
    console: Console,
    root: StateRoot,
    name: str,
    *,
    probe_s: float = LOOK_S,
    looker: Callable[..., ServerStatus] = look,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Looked:
    """Look at a server, twice where it seems to hang, and say whether to restart it.

    Parameters
    ----------
    probe_s
        Seconds that a token may take.
    looker, clock, pause
        What looks, tells the time and waits.

    Raises
    ------
    RigError
        When the record is broken, or a restart cannot be written down: then there is
        none, since nothing would hold back the next one.
    """
    record = records.load(root, name)
    if record is None:
        return _said(console, Looked(name, "absent", "no such server runs", False))
    seen = looker(root, record, deep=True, probe_s=probe_s)
    if seen.state is State.HUNG:
        pause(AGAIN_S)
        seen = looker(root, record, deep=True, probe_s=probe_s)
    if seen.state is not State.HUNG:
        return _said(console, Looked(name, seen.state.value, seen.reason, False))
    now = clock()
    before = hangs.recent(hangs.load(root, name), now)
    wait = hangs.due_at(before) - now
    if wait > 0:
        words = (
            f"{seen.reason}; restarted {len(before)} time(s) in a day, and not again "
            f"for {duration(wait)}"
        )
        return _said(console, Looked(name, seen.state.value, words, False))
    hangs.save(root, name, [*before, now])
    return _said(console, Looked(name, seen.state.value, seen.reason, True))


def _said(console: Console, found: Looked) -> Looked:
    mark = "ok"
    if found.state in ("hung", "dead"):
        mark = "fail"
    elif found.state != "ready":
        mark = "unknown" if found.state in ("absent", "starting", "unknown") else "warn"
    reason = f": {found.reason}" if found.reason else ""
    then = "; it is to be restarted" if found.restart else ""
    console.mark(mark, f"{found.name} is {found.state}{reason}{then}")
    return found
