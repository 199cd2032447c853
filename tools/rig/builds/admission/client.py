# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A build's own side of admission: its service, its watch, and what is learnt from it.

One object around the compile step of a build::

    with Admission(build, places, cores, cap) as admission:
        run(command, env={**env, **admission.env})
    admission.ran_out  # objects under which memory ran out
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tools.rig.base.errors import RigError
from tools.rig.base.process import Result
from tools.rig.base.run import stop_tree, stream
from tools.rig.builds.admission import protocol
from tools.rig.builds.admission.predictions import Predictions
from tools.rig.builds.admission.watch import Watch

_SOURCES = Path(__file__).parents[4]
_MOST_STARTS = 50
_PAUSE_S = 0.3
_STOP_S = 1.0
_JOIN_S = 10.0
_WAYS = (("started", 1), ("ended", -1))


@dataclass(frozen=True)
class Files:
    """What a build leaves behind of its admission, one JSON object a line.

    ``events`` has a line for each compile, ``memory`` one for each second.
    ``predictions`` is shared with later builds. ``log`` is the service's own words.
    """

    events: Path
    memory: Path
    log: Path
    predictions: Path

    @classmethod
    def of(cls, logs: Path, build: str, predictions: Path) -> Files:
        """Return the files of a build in the folder of logs."""
        return cls(
            logs / f"{build}.events.jsonl",
            logs / f"{build}.memory.jsonl",
            logs / f"{build}.admission.log",
            predictions,
        )


class Admission:
    """Runs from before the first compile of a build until after its last.

    Parameters
    ----------
    build
        The build's id.
    files
        See :class:`Files`.
    cores
        The most compiles at once, of all builds.
    cap
        The most compiles at once of this build: the user's ``MAX_JOBS``; None without.
    budget
        Bytes for all compiles; measured by the service when None.
    folder
        Where the socket lies; the user's own place when None.
    start
        Starts a long program (see :func:`tools.rig.base.run.stream`).

    Raises
    ------
    CannotError
        When there is no place for the socket.
    """

    def __init__(
        self,
        build: str,
        files: Files,
        cores: int,
        cap: int | None = None,
        *,
        budget: int | None = None,
        folder: Path | None = None,
        start: Callable[..., Result] = stream,
    ) -> None:
        self.build = build
        self.files = files
        self.folder = protocol.folder() if folder is None else folder
        self.learnt = 0
        self._start = start
        self._session = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._watch = Watch(build, self.folder, files.memory)
        self._argv = [
            sys.executable,
            *("-m", "tools.rig.builds.admission.service"),
            *("--build", build, "--cores", str(cores)),
            *("--folder", os.fspath(self.folder)),
            *(() if budget is None else ("--budget", str(budget))),
        ]
        self.env: Mapping[str, str] = {
            "RIG_ADMISSION": os.fspath(self.folder),
            "RIG_ADMISSION_BUILD": build,
            "RIG_ADMISSION_EVENTS": os.fspath(files.events),
            "RIG_ADMISSION_PREDICTIONS": os.fspath(files.predictions),
            "RIG_ADMISSION_CAP": str(cap or 0),
            # whom the others name that wait for us
            "RIG_ADMISSION_OWNER": str(os.getpid()),
        }

    def __enter__(self) -> Admission:
        """Start the service, or a candidate that waits for one that is there."""
        with contextlib.suppress(OSError):
            self.files.events.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        self._watch.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, and learn from the compiles also of a build that failed."""
        try:
            self._watch.__exit__(kind, value, trace)
        finally:
            self._stop()
            self._learn()

    @property
    def latest(self) -> dict[str, Any] | None:
        """What the service said a second ago; None when it says nothing."""
        return self._watch.latest

    @property
    def held_by(self) -> list[str]:
        """The builds that ran while this one waited and ran nothing."""
        return sorted(self._watch.held_by)

    @property
    def session(self) -> int:
        """Session id of the service, 0 before it is there."""
        return self._session

    def events(self) -> list[dict[str, Any]]:
        """Return this build's compiles so far, in the order in which they ended."""
        found = []
        with contextlib.suppress(OSError):
            text = self.files.events.read_text(encoding="utf-8", errors="replace")
            lines = (protocol.parsed(line.encode()) for line in text.split("\n"))
            found = [one for one in lines if one.get("build") == self.build]
        return found

    @property
    def ran_out(self) -> list[dict[str, Any]]:
        """The events of compiles under which memory ran out, mended or not."""
        return [one for one in self.events() if one.get("oom")]

    def _serve(self) -> None:
        for _ in range(_MOST_STARTS):
            # a service that was killed is followed by the next one; without any the
            # compiles go one by one, which is no reason to end a build
            with contextlib.suppress(RigError):
                self._start(
                    self._argv,
                    on_line=lambda line: None,
                    log=self.files.log,
                    env=_environment(),
                    cwd="/",
                    on_start=self._started,
                )
            if self._stopped.wait(_PAUSE_S):
                return

    def _started(self, session: int) -> None:
        self._session = session
        if self._stopped.is_set():
            stop_tree(session, 0.0)

    def _stop(self) -> None:
        self._stopped.set()
        if self._session:
            with contextlib.suppress(OSError):
                stop_tree(self._session, _STOP_S)
        self._thread.join(_JOIN_S)

    def _learn(self) -> None:
        known = Predictions.load(self.files.predictions)
        self.learnt = known.learn_events(self.events())
        if self.learnt:
            known.save(self.files.predictions)


def _environment() -> dict[str, str]:
    """Return ours, in which our own modules are found from any folder."""
    path = os.environ.get("PYTHONPATH", "")
    found = os.pathsep.join(p for p in (os.fspath(_SOURCES), path) if p)
    return {**os.environ, "PYTHONPATH": found}


def summary(
    events: list[dict[str, Any]], held_by: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the figures of a build's compiles for its record (seconds, bytes).

    ``waited_s`` adds up what each compile waited, in which others of the build ran most
    of the time; ``stalled_s`` is the time in which none ran and some waited.

    Parameters
    ----------
    events
        Its compiles.
    held_by
        The builds that ran meanwhile.
    """
    stalled = round(stalled_s(events), 1)
    done = [one for one in events if one.get("code") == 0]
    waited = sum(max(0.0, one["started"] - one["asked"]) for one in done)
    return {
        "compiles": len(events),
        "failed": len(events) - len(done),
        "hits": sum(one.get("cache") == "hit" for one in events),
        "ran_out": [
            {"object": one["object"], "bytes": one["peak_bytes"], "code": one["code"]}
            for one in events
            if one.get("oom")
        ],
        "compile_s": round(sum(one["seconds"] for one in events), 1),
        "waited_s": round(waited, 1),
        "stalled_s": stalled,
        "at_once": at_once(events),
        "held_by": [*held_by] if stalled else [],
        "largest_bytes": max((one["peak_bytes"] for one in events), default=0),
    }


def stalled_s(events: Sequence[Mapping[str, Any]]) -> float:
    """Return how long nothing of a build ran though some of its compiles waited."""
    turns: list[tuple[float, int, int]] = []
    for one in events:
        turns += [(one["asked"], 1, 0), (one["started"], -1, 1), (one["ended"], 0, -1)]
    turns.sort()
    waiting = running = 0
    then = found = 0.0
    for at, asks, runs in turns:
        if waiting and not running:
            found += at - then
        waiting, running, then = waiting + asks, running + runs, at
    return found


def at_once(events: Sequence[Mapping[str, Any]]) -> int:
    """Return how many compiles of a build ran together at most."""
    # an end comes before a start at the same moment
    turns = sorted((at[key], way) for at in events for key, way in _WAYS)
    running = most = 0
    for _, way in turns:
        running += way
        most = max(most, running)
    return most
