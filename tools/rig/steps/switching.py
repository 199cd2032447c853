# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Brings a built generation into force, once nobody uses the one that is.

The scan comes last, when everything is written and only renames are left. Who started
in the moment between is found by a second scan; then the switch is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, duration
from tools.rig.base.errors import InUseError, RigError
from tools.rig.builds import generations, switch
from tools.rig.builds.generations import Generation
from tools.rig.builds.switch import Switched
from tools.rig.guard import gate
from tools.rig.guard.gate import InUse
from tools.rig.steps.scene import Scene


@dataclass(frozen=True)
class Wish:
    """How a switch is to be made.

    ``when_free`` waits for those who use what is in force, ``force`` switches over
    them, ``any_commit`` places libraries of another commit than the checkout's.
    """

    when_free: bool = False
    force: bool = False
    any_commit: bool = False


def switch_on(
    console: Console,
    found: Scene,
    to: Generation,
    wish: Wish,
    *,
    head: str,
    proved: Callable[[], Any] | None = None,
    patience: float = 0.0,
    fresh: bool = True,
    guard: Callable[..., Any] = gate.guard,
) -> tuple[Switched, list[str]]:
    """Switch to a generation; return what was done and over whom.

    The caller holds the lock of the environment.

    Parameters
    ----------
    found
        Whose environment it is.
    to
        A complete generation.
    wish
        Whether to wait, and for whom.
    head
        The checkout's commit in full.
    proved
        Called after the switch; what it raises takes the switch back.
    patience
        Seconds to wait for those who are about to leave.
    fresh
        Whether it was just made, and not brought back.
    guard
        A seam for tests.

    Raises
    ------
    InUseError
        When somebody uses what is in force; the generation is kept (exit 4).
    RigError
        When it cannot be switched to, or is not what it should be.
    """
    root, place = found.root, found.environment.name
    before = switch.active(root, place)
    earlier = generations.placed(root, place).previous
    old = found.environment.resolve()
    checkout = found.checkout if to.mode == "editable" else None
    over: list[str] = []

    def look(seconds: float = 0.0) -> None:
        try:
            seen = guard(console, old, checkout, force=wish.force, patience=seconds)
        except InUse as exc:
            raise _kept(exc, old, to, fresh) from exc
        over[:] = gate.process_lines(seen) if wish.force else []

    look(math.inf if wish.when_free else patience)
    done = switch.switch(
        root,
        place,
        to,
        head=head,
        force=wish.any_commit,
        # whom it is switched over was said once
        before=None if wish.force else look,
    )
    try:
        if not wish.force:
            look()
        if proved is not None:
            proved()
    except BaseException:
        _back(console, found, before or _earlier(done), earlier)
        raise
    console.mark("ok", f"switched to {to.id} ({duration(done.seconds)})")
    if to.mode == "wheel":
        _tell_of_overlay(console, found)
    return done, over


def _tell_of_overlay(console: Console, found: Scene) -> None:
    """Say it where a Python that is started in the checkout takes other libraries."""
    note = generations.placed(found.root, found.environment.name)
    there = [path for path in note.libraries if (found.checkout / path).exists()]
    if there:
        console.mark(
            "warn",
            f"{found.checkout} still holds the libraries of the overlay {note.id}",
        )
        console.say("  a Python that is started there imports them, not this build")


def _kept(seen: InUse, old: Path, to: Generation, fresh: bool) -> InUseError:
    what = f"the build {to.id} is kept and" if fresh else f"{to.id} is"
    return InUse(
        old,
        seen.found,
        f"{what} not switched on: stop them first, or set ONECAT_FORCE=1 to switch "
        "anyway",
        f"invoke activate --build {to.id} --when-free",
        *(() if fresh else ("",)),
    )


def _earlier(done: Switched) -> Generation | None:
    """Return an environment that was no generation before the switch made it one."""
    return None if done.kept is None else generations.read(done.kept)


def _back(
    console: Console, found: Scene, before: Generation | None, earlier: str | None
) -> None:
    """Take a switch back; where nothing was before, there is nothing to go back to.

    What was the one to go back to before the switch is so again.
    """
    if before is None or not before.complete:
        console.mark("warn", "no build was in force before, so the new one stays")
        return
    root, place = found.root, found.environment.name
    try:
        switch.switch(root, place, before, force=True, previous=earlier or "")
    except RigError as exc:
        # the first failure is the one to raise
        console.mark("fail", f"{before.id} could not be put back: {exc.what}")
        console.say(f"  invoke activate --build {before.id}")
        return
    console.mark("warn", f"switched back to {before.id}")


def settle(console: Console, found: Scene) -> None:
    """Finish or undo a switch that was interrupted; the caller holds the lock.

    Raises
    ------
    StepFailed
        When that is not possible, or when what the last switch noted cannot be read:
        the next one would find out, after an hour of compiling.
    """
    settled = switch.settle(found.root, found.environment.name)
    if settled:
        console.say(f"  an interrupted switch was {settled}")
    generations.placed(found.root, found.environment.name)
