# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads the output of a long program and notices when nothing happens any more.

A program that hangs in the kernel on a dead network disk prints nothing, reads and
writes nothing and uses no processor. All of that stands in ``/proc``, which answers
even then; looking at the disk itself would hang as well.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TICK_S = 5.0
"""Seconds between two looks at a silent program."""


class Stalled(Exception):
    """Nothing moved for the stated time; ``seconds`` says how long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no progress for {seconds:.0f} s")
        self.seconds = seconds


def lines(
    fd: int,
    session: int,
    idle_s: float | None = None,
    *,
    tick_s: float = TICK_S,
    activity: Callable[[int], tuple[int, int]] | None = None,
) -> Iterator[str]:
    """Yield the lines that come out of a pipe, each with its line feed.

    Parameters
    ----------
    fd
        The pipe's reading end.
    session
        Session id of the processes that write to it.
    idle_s
        Seconds without output, input, writing or use of a processor after which the
        program counts as stuck. None waits for ever.
    tick_s
        Seconds between two looks.
    activity
        Returns two counters of a session that grow while it works.

    Raises
    ------
    Stalled
        When the program is stuck.
    """
    look = session_activity if activity is None else activity
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("replace"), translate=True
    )
    rest = ""
    seen = (0, 0)
    moved = time.monotonic()
    wait = None if idle_s is None else min(tick_s, idle_s)
    while True:
        ready, _, _ = select.select([fd], [], [], wait)
        if ready:
            chunk = os.read(fd, 65536)
            moved = time.monotonic()
            *whole, rest = (rest + decoder.decode(chunk, final=not chunk)).split("\n")
            yield from (line + "\n" for line in whole)
            if not chunk:
                if rest:
                    yield rest
                return
            continue
        now = look(session)
        if now != seen:
            seen, moved = now, time.monotonic()
        elif idle_s is not None and time.monotonic() - moved >= idle_s:
            raise Stalled(time.monotonic() - moved)


def session_activity(session: int, proc: Path = Path("/proc")) -> tuple[int, int]:
    """Return processor ticks and bytes read or written by all of a session.

    What may not be read counts as 0.
    """
    ticks = moved = 0
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (proc / entry / "stat").read_text(errors="replace")
            fields = stat[stat.rindex(")") + 2 :].split()
            if int(fields[3]) != session:
                continue
            ticks += sum(int(n) for n in fields[11:15])
            counters = dict(
                line.split(": ", 1)
                for line in (proc / entry / "io").read_text().splitlines()
            )
            moved += int(counters["rchar"]) + int(counters["wchar"])
    return ticks, moved
