# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which match is the root cause, what follows from it, and what is harmless.

The order is general: specific beats general; a worker's line beats the engine's, which
beats the API server's; then the earlier line beats the later one. What was followed by
success is no cause.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import regex as re

from tools.rig.diagnose.clean import Line
from tools.rig.diagnose.entries import Phase, Role
from tools.rig.diagnose.first_error import Rank, rank_of
from tools.rig.diagnose.match import Hit, Read
from tools.rig.diagnose.outcomes import success_of

_RAISES = re.compile(r"raise \w|f?['\"]")

_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?!\w*(?:Error|Warning|Interrupt|Exit|Disconnect\w*|EndOfStream"
    r"|WouldBlock|Empty|Again|Stop\w*)\b)[A-Z]\w+(?::|$)"
)
"""An exception of any name at the end of a traceback, but for those that end work."""

TELLING = 8
"""Lines that are shown of a log that is not recognised."""


class Verdict(str, enum.Enum):
    """What a log says as a whole."""

    FAILURE = "failure"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One entry that matched, with its part in the story.

    The first of its lines stands for all.
    """

    hit: Hit
    role: Role
    times: int = 1


@dataclass(frozen=True)
class Judgement:
    """The verdict, and the findings with the root cause first.

    ``telling`` are the lines that tell most where nothing was recognised.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    telling: tuple[Line, ...] = ()

    @property
    def root(self) -> Hit | None:
        """The root cause, where one was recognised."""
        failed = self.verdict is Verdict.FAILURE
        return self.findings[0].hit if failed else None


def judge(log: Read) -> Judgement:
    """Return what a log says."""
    claimed = _claims(log.hits)
    ends = _Ends(log, claimed)
    groups: dict[str, list[Hit]] = {}
    for hit in log.hits:
        if hit.entry.role is not Role.HARMLESS and _excused(hit, claimed):
            continue
        if hit.entry.role is not Role.HARMLESS and ends.survived(hit):
            continue
        groups.setdefault(hit.entry.id, []).append(hit)
    firsts = [(_first(hits), len(hits)) for hits in groups.values()]
    causes = [pair for pair in firsts if pair[0].entry.role is Role.CAUSE]
    others = [pair for pair in firsts if pair[0].entry.role is not Role.CAUSE]
    findings = [*_ordered_causes(causes)]
    others.sort(key=lambda pair: pair[0].line.number)
    for role in (Role.CONSEQUENCE, Role.HARMLESS):
        findings += [
            Finding(hit, role, times) for hit, times in others if hit.entry.role is role
        ]
    findings.sort(key=lambda one: list(Role).index(one.role))
    if causes:
        return Judgement(Verdict.FAILURE, tuple(findings))
    telling = ends.unexplained()
    if telling or any(one.role is Role.CONSEQUENCE for one in findings):
        return Judgement(Verdict.UNKNOWN, tuple(findings), telling)
    return Judgement(Verdict.HEALTHY, tuple(findings))


def _ordered_causes(causes: Sequence[tuple[Hit, int]]) -> list[Finding]:
    """Return the root cause, then what else went wrong by itself, then the rest."""
    beaten = {name for hit, _ in causes for name in hit.entry.beats}
    order = sorted(
        causes,
        key=lambda pair: (
            pair[0].entry.id in beaten,
            pair[0].entry.general,
            pair[0].line.depth,
            pair[0].line.number,
        ),
    )
    out: list[Finding] = []
    for hit, times in order:
        root = out[0].hit if out else None
        if root is not None and hit.line.number == root.line.number:
            # it says less of the same line
            continue
        follows = root is not None and (
            hit.entry.general
            or hit.entry.id in beaten
            or hit.entry.phase > root.entry.phase
        )
        out.append(Finding(hit, Role.CONSEQUENCE if follows else Role.CAUSE, times))
    return out


def _first(hits: Sequence[Hit]) -> Hit:
    # a traceback shows the line that raises, then what it says
    return min(
        hits,
        key=lambda hit: (
            hit.line.depth,
            _RAISES.match(hit.line.text) is not None,
            hit.line.number,
        ),
    )


def _claims(hits: Iterable[Hit]) -> dict[int, set[str]]:
    """Return by line number the harmless entries that claim it."""
    claims: dict[int, set[str]] = {}
    for hit in hits:
        if hit.entry.role is Role.HARMLESS:
            for number in hit.numbers:
                claims.setdefault(number, set()).add(hit.entry.id)
    return claims


def _excused(hit: Hit, claimed: dict[int, set[str]]) -> bool:
    """Whether an entry that knows better says that this line is harmless."""
    claims = set().union(*(claimed.get(number, set()) for number in hit.numbers))
    return bool(claims - hit.entry.beats)


class _Ends:
    """How things ended in a log, line by line."""

    def __init__(self, log: Read, claimed: dict[int, set[str]]) -> None:
        self._lines = log.lines
        self._claimed = claimed
        self._successes = [
            (line.number, phase)
            for line in log.lines
            if (phase := success_of(line.text)) is not None
        ]
        self._failures = [
            (hit.line.number, hit.entry.phase)
            for hit in log.hits
            if hit.entry.role is Role.CONSEQUENCE and not _excused(hit, claimed)
        ]

    def survived(self, hit: Hit) -> bool:
        """Whether the same thing succeeded later, and that was how it ended."""
        return not hit.entry.silent and self._passed(hit.line.number, hit.entry.phase)

    def _passed(self, number: int, phase: Phase) -> bool:
        return any(
            success > number
            and reached >= phase
            # pip tells of the wheels that it built, then of those that it did not
            and not any(f > success and of <= reached for f, of in self._failures)
            for success, reached in self._successes
        )

    def unexplained(self) -> tuple[Line, ...]:
        """Return the lines that report a failure which nothing excuses."""
        ranked: list[tuple[Rank, Line]] = []
        raising: set[str] = set()
        for line in self._lines:
            rank = rank_of(line.text)
            if line.text.startswith("Traceback (most recent call last)"):
                raising.add(line.source)
            elif line.text and not line.indent and line.source in raising:
                raising.discard(line.source)
                if rank is None and _RAISED.match(line.text):
                    rank = Rank.REPORT
            if rank is None or line.number in self._claimed:
                continue
            if not self._passed(line.number, Phase.ENVIRONMENT):
                ranked.append((rank, line))
        ranked.sort(key=lambda pair: (pair[0], pair[1].number))
        return tuple(line for _, line in ranked[:TELLING])
