# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The gate before a build: it stays shut while someone uses the environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError
from tools.rig.guard import signs
from tools.rig.guard.scan import ScanResult, User, scan
from tools.rig.guard.targets import Targets
from tools.rig.host import gpu

_AGAIN_S = 0.5
_SELDOM_S = 5.0
"""Seconds between scans after a minute of waiting."""
_REMIND_S = 60.0
_LOOK = "invoke in-use"
_WIDTH = 200
"""Letters of a command line that a message shows."""


class InUse(InUseError):
    """Processes run from the environment; the message is one line for each, and one.

    Parameters
    ----------
    venv
        The environment.
    found
        What the scan found.
    instead
        What to do about it.
    hint
        A command to type.
    who
        Who says so; empty where nothing is built.
    """

    def __init__(
        self,
        venv: Path,
        found: ScanResult,
        instead: str = "stop them first, or set ONECAT_FORCE=1 to build anyway",
        hint: str = _LOOK,
        who: str = "rebuild-sm70-v100: ",
    ) -> None:
        self.found = found
        super().__init__(
            f"{who}the above process(es) are running from {venv}; {instead}",
            details=process_lines(found),
            hint=hint,
        )

    def lines(self) -> list[str]:
        """Return one line ``PID COMMAND`` a process, and what to do about them."""
        more = [] if self.hint == _LOOK else [f"hint: {self.hint}"]
        return [*self.details, self.what, *more]


def process_lines(found: ScanResult) -> list[str]:
    """Return one line ``PID COMMAND`` a process."""
    return [
        f"{user.pid} {_short(user.command)}" for user in found.users + found.suspects
    ]


def owner_lines(found: ScanResult) -> list[str]:
    """Return one line a process: whose it is and why it counts."""
    return [
        *(f"PID {u.pid} of {u.user}: {reasons(u)}" for u in found.users),
        *(f"PID {u.pid} of {u.user}, perhaps: {reasons(u)}" for u in found.suspects),
    ]


def reasons(user: User) -> str:
    """Return what a process uses, the first file and the number of further ones."""
    words = list(user.why)
    if user.maps:
        more = len(user.maps) - 1
        words.insert(0, f"maps {user.maps[0]}" + (f" and {more} more" if more else ""))
    return signs.one_line(", ".join(words))


def unknown_lines(found: ScanResult) -> list[str]:
    """Return what the scan could not see; empty when it saw everything."""
    lines = list(found.blind)
    if found.unknown:
        lines.append(
            f"{found.unknown} process(es) of others may not be looked into: whether "
            "they use it is unknown (root can tell)"
        )
    return lines


def gpu_pids(
    ask: Callable[[], Mapping[int, Iterable[int]] | None] = gpu.processes,
) -> set[int]:
    """Return the processes that compute on a card, as far as NVML tells."""
    cards = ask() or {}
    return {pid for pids in cards.values() for pid in pids}


def look_at(targets: Targets) -> ScanResult:
    """Scan this machine, with NVML for those that may not be looked into."""
    return scan(targets, gpu_pids=gpu_pids)


def guard(
    console: Console,
    venv: Path,
    checkout: Path | None,
    *,
    force: bool,
    patience: float = 0.0,
    look: Callable[[Targets], ScanResult] = look_at,
) -> ScanResult:
    """Refuse to go on while the environment or the checkout's libraries are in use.

    Parameters
    ----------
    console
        Where it is said whose processes they are, what is unknown and what was
        overridden.
    venv, checkout
        As for :meth:`Targets.of`.
    force
        Go on all the same; the processes are named as a warning.
    patience
        Seconds to wait for them to leave: the compilers of a build that was killed need
        a moment, a server as long as it runs. Nothing is waited for with `force`.
    look
        The scan.

    Raises
    ------
    InUseError
        When processes use it, or may use it and cannot be looked into.
    """
    found = _left(console, venv, checkout, 0.0 if force else patience, look)
    for line in unknown_lines(found):
        console.mark("unknown", line)
    if found.free:
        return found
    for line in owner_lines(found):
        console.mark("warn" if force else "fail", line)
    if not force:
        raise InUse(venv, found)
    for line in process_lines(found):
        console.say(line)
    console.mark("warn", "ONECAT_FORCE=1: going on although the above may break")
    return found


def _left(
    console: Console,
    venv: Path,
    checkout: Path | None,
    patience: float,
    look: Callable[[Targets], ScanResult],
) -> ScanResult:
    """Look until nobody uses it any more, or patience is at its end."""
    since = said = time.monotonic()
    found = look(Targets.of(venv, checkout))
    while not found.free and (waited := time.monotonic() - since) < patience:
        if time.monotonic() - said >= _REMIND_S or (said == since and waited > 1):
            said = time.monotonic()
            for line in owner_lines(found):
                console.mark("unknown", f"waiting for {line}")
        time.sleep(_AGAIN_S if waited < _REMIND_S else _SELDOM_S)
        found = look(Targets.of(venv, checkout))
    return found


def _short(command: str) -> str:
    return command if len(command) <= _WIDTH else command[:_WIDTH] + "..."
