# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A run whose steps people see and whose record says how it ended, whatever happens."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import (
    ExitCode,
    Interrupted,
    RigError,
    StepFailed,
)
from tools.rig.base.state import StateRoot
from tools.rig.builds.record import Record
from tools.rig.guard.gate import InUse


class Run:
    """One run and its record: ``with run: with run.step("verify"): ...``.

    Leaving it by an exception records ``failed``, ``interrupted``, or ``kept`` where
    only the switch was refused, with ``facts``, what was learned until then. Leaving
    it in peace records nothing: see :meth:`done`.
    """

    def __init__(self, console: Console, root: StateRoot) -> None:
        self.console = console
        self.record = Record(root, " ".join(sys.argv))
        self.facts: dict[str, Any] = {}
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def done(self, **values: Any) -> None:
        """Record success."""
        self._end("done", ExitCode.OK, **values)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Frame one step for people and for the record."""
        started = time.monotonic()
        try:
            with self.console.step(title):
                yield
        except BaseException:
            # a disk that is full must not hide the failure that it caused
            with contextlib.suppress(StepFailed):
                self.record.step(title, time.monotonic() - started, "failed")
            raise
        self.record.step(title, time.monotonic() - started, "done")

    def __enter__(self) -> Run:
        """Begin."""
        return self

    def __exit__(self, kind: Any, value: BaseException | None, trace: Any) -> None:
        """Record a bad end."""
        if value is None:
            return
        if isinstance(value, (KeyboardInterrupt, Interrupted)):
            self._end("interrupted", ExitCode.INTERRUPTED, error=str(value))
        else:
            code = value.code if isinstance(value, RigError) else ExitCode.FAILED
            # who uses it is asked last: what was built is there, though not in force
            result = "kept" if isinstance(value, InUse) else "failed"
            self._end(result, code, error=str(value))

    def _end(self, result: str, code: ExitCode, **values: Any) -> None:
        seconds = round(self.seconds, 1)
        self.record.end(result, code, seconds=seconds, **{**self.facts, **values})
