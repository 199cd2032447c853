# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From the names of logs to a judgement."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.rig.base.errors import ExitCode
from tools.rig.diagnose.entries import catalogue
from tools.rig.diagnose.judge import Judgement, Verdict, judge
from tools.rig.diagnose.match import Matcher
from tools.rig.diagnose.reader import blocks, opened

_CODES = {
    Verdict.HEALTHY: ExitCode.OK,
    Verdict.FAILURE: ExitCode.FAILED,
    Verdict.UNKNOWN: ExitCode.UNKNOWN,
}

_WORST_FIRST = (Verdict.FAILURE, Verdict.UNKNOWN, Verdict.HEALTHY)


@dataclass(frozen=True)
class Examined:
    """A log's judgement. ``log`` is its name, ``lines`` how many it has."""

    log: str
    judgement: Judgement
    lines: int

    @property
    def exit_code(self) -> ExitCode:
        """0 nothing wrong, 1 a cause was found, 5 not recognised."""
        return _CODES[self.judgement.verdict]


@functools.cache
def matcher() -> Matcher:
    """Return the matcher of the whole catalogue."""
    return Matcher(catalogue())


def stream(pieces: Iterable[bytes], name: str = "") -> Examined:
    """Judge a log that comes in blocks of whole lines."""
    read = matcher().read(pieces)
    return Examined(name, judge(read), read.total)


def logs(names: Sequence[str]) -> list[Examined]:
    """Judge logs and return those that explain most first: with a cause, then unknown.

    Raises
    ------
    UsageError
        One of them cannot be read.
    """
    examined = []
    for name in names:
        with opened(name) as source:
            examined.append(stream(blocks(source), name))
    examined.sort(key=lambda one: _WORST_FIRST.index(one.judgement.verdict))
    return examined
