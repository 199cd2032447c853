# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a server's counters move, for a moment or while it is to make a token."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tools.rig.base.idle import session_activity
from tools.rig.serve import members, metrics, pace, probe
from tools.rig.serve.metrics import Counters
from tools.rig.serve.record import ServerRecord

STILL_S = 5.0
"""Seconds that counters must have stood still at the least: a step may be long. What
its processes waited for the machine meanwhile does not count."""

PATIENCE_S = 45.0
"""Seconds beyond the completion's own in which that must have been seen."""

WINDOW_S = 0.35
"""Seconds between the two counts of a quick look."""

_QUICK_S = 0.4
_SAMPLE_S = 0.5


@dataclass
class Seen:
    """What was counted during a look.

    Attributes
    ----------
    first, last
        The first counters and the newest; None: it does not tell them.
    moved
        Whether they grew; None: that is not known until the end.
    used_cpu
        Whether its processes used the processor.
    starved
        Whether it cannot be told if it stood still: it waited for this machine.
    said
        What came of the completion.
    """

    first: Counters | None
    last: Counters | None
    seconds: float
    moved: bool | None
    used_cpu: bool
    starved: bool = False
    said: probe.Completion | None = None


def count(record: ServerRecord, key: str, probe_s: float) -> Seen:
    """Count for a moment, or for as long as a completion takes.

    Parameters
    ----------
    key
        The server's API key.
    probe_s
        Seconds that the completion may take; 0: none is asked for.
    """
    most = limit(probe_s > 0)
    start = time.monotonic()
    seen = Seen(None, None, 0.0, None, True)
    busy = session_activity(record.session)[0]
    _again(seen, record, most)
    if probe_s > 0:
        _probed(seen, record, key, probe_s)
    elif seen.first is not None:
        time.sleep(WINDOW_S)
        _again(seen, record, most)
    seen.used_cpu = session_activity(record.session)[0] > busy
    seen.seconds = time.monotonic() - start
    return seen


def _again(seen: Seen, record: ServerRecord, most: float) -> bool:
    """Read the counters once more; return whether that went well."""
    now = metrics.read(record, most)
    if now is None:
        return False
    seen.first = seen.first or now
    seen.last = now
    if now.work is not None:
        seen.moved = bool(seen.moved) or _grew(seen.first, now)
    return True


def _probed(seen: Seen, record: ServerRecord, key: str, probe_s: float) -> None:
    """Have a token made, and count until it is there or it is clear what it is.

    The request stays when its time is up: without it a server that is only slow would
    have nothing to do, and its counters would stand still with good reason.
    """
    start = time.monotonic()
    whole = probe_s + PATIENCE_S
    open_: list[http.client.HTTPConnection] = []
    said: list[probe.Completion] = []

    def ask() -> None:
        said.append(
            probe.completion(record, timeout=whole, key=key, opened=open_.append)
        )

    thread = threading.Thread(target=ask, daemon=True)
    pids = [member.pid for member in members.of(record)]
    before = pace.read(pids)
    thread.start()
    since, counted = start, False
    while thread.is_alive():
        left = start + probe_s - time.monotonic()
        thread.join(min(_SAMPLE_S, left) if left > 0 else _SAMPLE_S)
        late = time.monotonic() - start >= probe_s
        unseen = seen.first is None
        if _again(seen, record, limit(deep=True)):
            counted = counted or late
            if unseen:
                # what was not counted from the start on may have moved until now
                since, before = time.monotonic(), pace.read(pids)
        if not late or not thread.is_alive():
            continue
        now = time.monotonic()
        seen.starved = now - since - pace.lost(before, pace.read(pids)) < STILL_S
        if seen.moved or not seen.starved or now - start >= whole:
            break
    seen.said = said[0] if said else None
    if seen.said is None or seen.said.timed_out:
        _end(open_)
        thread.join(1.0)
        seen.said = probe.Completion(
            f"no token within {probe_s:.0f} s", seconds=probe_s, timed_out=True
        )
        if not seen.moved and not counted:
            # what it counted before the time was up says nothing of the end
            seen.moved = None


def _end(connections: Sequence[http.client.HTTPConnection]) -> None:
    """End requests that another thread still waits for."""
    for there in connections:
        with contextlib.suppress(OSError, AttributeError):
            there.sock.shutdown(socket.SHUT_RDWR)


def limit(deep: bool) -> float:
    """Return the seconds that a page of a server may take."""
    return 2.0 if deep else _QUICK_S


def _grew(first: Counters | None, last: Counters | None) -> bool:
    if first is None or last is None or first.work is None or last.work is None:
        return False
    return last.work > first.work
