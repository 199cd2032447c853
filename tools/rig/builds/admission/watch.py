# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Follows the admission service during a build: for the display and the report."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tools.rig.builds.admission import protocol

EVERY_S = 1.0
STALE_S = 5.0
"""Seconds after which an answer says nothing about now."""


class Watch:
    """Asks once a second, keeps the latest answer, appends a line to a file.

    Parameters
    ----------
    build
        Its compiles are counted beside those of all builds.
    folder
        Where the service has its socket.
    samples
        Gets one JSON object a line: ``t`` (seconds since the start), ``used``,
        ``budget``, ``reserved`` (bytes), ``running`` and ``waiting`` (numbers, of all
        builds), ``own`` (bytes of this build).
    ask, clock
        How the service is asked, and CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        build: str,
        folder: Path,
        samples: Path,
        ask: Callable[[Path], dict[str, Any] | None] = protocol.status,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.build = build
        self.held_by: set[str] = set()
        self._folder = folder
        self._samples = samples
        self._ask = ask
        self._clock = clock
        self._start = clock()
        self._latest: tuple[float, dict[str, Any]] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    @property
    def latest(self) -> dict[str, Any] | None:
        """The newest answer; None when there is none of the last five seconds."""
        if self._latest is None or self._clock() - self._latest[0] > STALE_S:
            return None
        return self._latest[1]

    def __enter__(self) -> Watch:
        """Start to ask."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(timeout=5.0)

    def look(self) -> None:
        """Ask once."""
        found = self._ask(self._folder)
        if found is None:
            return
        now = self._clock()
        self._latest = (now, found)
        own = [o["bytes"] for o in found["running"] if o["build"] == self.build]
        if not own and any(o["build"] == self.build for o in found["waiting"]):
            self.held_by |= {o["build"] for o in found["running"]}
        line = {
            "t": round(now - self._start, 1),
            "used": found["used"],
            "budget": found["budget"],
            "reserved": found["reserved"],
            "running": len(found["running"]),
            "waiting": len(found["waiting"]),
            "own": sum(own),
        }
        # a full disk must not end the display
        with (
            contextlib.suppress(OSError),
            self._samples.open("a", encoding="utf-8") as fh,
        ):
            fh.write(json.dumps(line) + "\n")

    def _loop(self) -> None:
        while not self._stop.wait(EVERY_S):
            # an answer of another version is no answer
            with contextlib.suppress(KeyError, TypeError):
                self.look()
