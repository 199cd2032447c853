# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-stop``: end a server and see that everything is given back."""

from __future__ import annotations

import shlex

from tools.rig.base.console import Console, duration
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu
from tools.rig.serve import cards, stop
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.stop import Stopped


def pick(root: StateRoot, name: str) -> ServerRecord:
    """Return the server of that name; without a name, the only one that there is.

    Raises
    ------
    UsageError
        When there is none, or more than one to choose from; a record that cannot be
        read is one more.
    StepFailed
        When the record of that name cannot be read.
    """
    found = records.listing(root)
    names = [record.name for record in found]
    if name:
        record = records.load(root, name)
        if record is None:
            raise UsageError(
                f"no server is called {name}",
                usual=f"There are: {', '.join(names)}." if names else "",
                hint="invoke serve-status",
            )
        return record
    bad = records.broken(root)
    if bad:
        raise UsageError(
            f"which one of {', '.join(sorted([*names, *(one.name for one in bad)]))}?",
            details=[one.problem for one in bad],
            usual="The server of a record that cannot be read may run all the same.",
            hint=f"--name {shlex.quote(names[0])}" if names else bad[0].hint,
        )
    if not found:
        raise UsageError(
            "no server is recorded here", hint="invoke serve-tp2 --model PATH"
        )
    if len(found) > 1:
        raise UsageError(
            f"which one of {', '.join(names)}?",
            hint=f"--name {shlex.quote(names[0])}",
        )
    return found[0]


def serve_stop(
    console: Console,
    root: StateRoot,
    name: str = "",
    *,
    drain: float | None = None,
    ask: cards.Ask = gpu.read,
) -> Stopped:
    """Stop one server.

    Parameters
    ----------
    name
        Which; may be empty where there is one only.
    drain
        Seconds that running requests get to finish; None: what the server was started
        with.

    Raises
    ------
    UsageError
        When it is not clear which one.
    CannotError
        When it belongs to another user.
    StepFailed
        When a process or a card's memory does not go away.
    """
    record = pick(root, name)
    with console.step(f"stopping {record.name}"):
        done = stop.stop(root, record, drain=drain, say=console.say, ask=ask)
    if not done.ended:
        console.say("  it was not running; its record is removed, its log stays")
    for line in done.cards:
        console.say(f"  {line} (after {duration(done.memory_s)})")
    for path in done.shm_removed:
        console.say(f"  removed {path}")
    if done.killed:
        console.mark("warn", f"killed: {', '.join(map(str, done.killed))}")
    return done
