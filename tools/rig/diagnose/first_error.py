# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The first line of a build log that names the cause; hardly ever the last one.

A failing build ends in layers of consequences: the compiler's message, then
``ninja: build stopped``, then a ``CalledProcessError``, then pip's
``subprocess-exited-with-error``. Every line gets one of three ranks, and the first
line of the best rank that occurs is the answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

import regex as re

CONTEXT_LINES = 6
"""Following lines kept with an error: CMake and compilers explain themselves there."""

LINE_LIMIT = 2000
"""Characters of a line that are looked at: echoed link commands are very long."""


class Rank(enum.IntEnum):
    """How much a line says about the cause; lower is better."""

    CAUSE = 0
    REPORT = 1
    CONSEQUENCE = 2


@dataclass(frozen=True)
class FirstError:
    """The first decisive error of a log.

    ``line`` counts from 1. ``text`` is that line without colours, frames and
    indentation; ``context`` are a few lines after it.
    """

    line: int
    text: str
    context: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return text and context for showing, without the empty lines at the end."""
        out = [self.text, *self.context]
        while out and not out[-1].strip():
            out.pop()
        return out


def first_error(lines: Iterable[str]) -> FirstError | None:
    """Return the first decisive error of a log, or None when there is none.

    Parameters
    ----------
    lines
        The log, line by line. It is read once, never held in memory, and not read
        further than needed.
    """
    best: _Candidate | None = None
    for number, raw in enumerate(lines, 1):
        text = _plain(raw)
        rank = rank_of(text)
        if rank is not None and (best is None or rank < best.rank):
            best = _Candidate(rank, number, text.strip())
        elif best is not None and len(best.context) < CONTEXT_LINES:
            best.context.append(text.rstrip())
        elif best is not None and best.rank is Rank.CAUSE:
            break
    return (
        None if best is None else FirstError(best.line, best.text, tuple(best.context))
    )


@dataclass
class _Candidate:
    rank: Rank
    line: int
    text: str
    context: list[str] = field(default_factory=list)


_PAINT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_STAMP = re.compile(
    r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? "
)
_FRAME = re.compile(r"^[\s│|╰├└─>┃▶]+(?=\S)")


def _plain(raw: str) -> str:
    """Take away colours, time stamps and what a progress bar overwrote."""
    text = raw.rstrip("\r\n")[:LINE_LIMIT]
    if "\x1b" in text:
        text = _PAINT.sub("", text)
    if "\r" in text:
        text = text.rpartition("\r")[2]
    return str(_STAMP.sub("", text))


def rank_of(text: str) -> Rank | None:
    """Say how much a line tells about the cause; None when it reports no error."""
    if not _WORTH_A_LOOK.search(text):
        return None
    text = _FRAME.sub("", text)
    if _HARMLESS.search(text):
        return None
    if _CONSEQUENCE.search(text):
        return Rank.CONSEQUENCE
    if _CAUSE.search(text):
        return Rank.CAUSE
    if _REPORT.search(text):
        return Rank.REPORT
    return None


_WORTH_A_LOOK = re.compile(
    r"error|exception|fatal|fail|kill|signal|No s|no s|cannot|undefined|multiple"
    r"|exceeded|exhausted|denied|busy|stale|bad_alloc|fault|\*\*\*|not found|Errno"
    r"|SystemExit|Read-only|stopped|Could not|panicked|abort|terminate|^E: |trap"
    r"|Illegal|panic|giving up|can't|unable|unmet|terminated|No module"
    r"|\bld(?:\.\w+)?: |ERR!"
    r"|refused|wrong fs|insufficient|\[emerg\]",
    re.IGNORECASE,
)
"""A cheap test first: almost all lines of a log are progress."""

# a version lookup outside a repository, and what compilers say about warnings
_HARMLESS = re.compile(
    r"fatal: (?:not a git repository|no tag exactly|No names found|no upstream)"
    r"|^\S*: warning: |^warning:|^-- (?!Configuring incomplete)"
    r"|^CMake (?:Deprecation )?Warning|:\d+: [A-Z]\w*Warning: "
    r"|^rmmod: ERROR: Module \S+ is not currently loaded"
    # what NCCL tries and does without
    r"|^\S{1,80} \[\d+\] NCCL INFO ",
)

_CONSEQUENCE = re.compile(
    r"^ninja: build stopped|CalledProcessError|subprocess-exited-with-error"
    r"|^FAILED: |^g?make(?:\[\d+\])?: \*\*\* .*(?:Error \d+|Waiting)"
    r"|^error: (?:metadata-generation-failed|failed-wheel-build|legacy-install)"
    r"|^collect2: error: ld (?!terminated)|^error: command .* failed with"
    r"|^ERROR: Failed building|^Failed to build"
    r"|^ERROR: Failed to build|^[×x] (?:Failed to build|Encountered error|Building "
    r"|Preparing |Getting |python setup|pip subprocess)|Configuring incomplete"
    r"|^[1-9]\d* errors? (?:detected|generated)"
    r"|exit(?:ed with)? (?:code|status):? [1-9]\d*\.?$"
    r"|^(?:The )?[Bb]uild backend (?:returned|failed)"
    r"|^nox > .*failed with exit code",
)

_CAUSE = re.compile(
    # compilers: gcc and clang (file:line:col), nvcc and cudafe++ (file(line))
    r":\d+(?::\d+)?: (?:fatal |internal compiler )?(?:error|ERROR): "
    r"|^error\[E\d{4}\]: "
    r"|\(\d+\): (?:catastrophic |internal )?error(?: #[\w-]+)?:"
    r"|^\S+: (?:fatal |internal compiler )?error: "
    r"|^(?:nvcc|ptxas|cicc|nvlink|fatbinary|cudafe\+\+)\s+(?:.*, line \d+; )?"
    r"(?:fatal|error)\b"
    r"|^ptxas .*(?:error|fatal)\s*:"
    # ended from outside
    r"|^Killed$|^thread '[^']*' (?:\(\d+\) )?panicked at |^panic: "
    r"|^(?:Aborted|Illegal instruction|Floating point exception|Trace/breakpoint trap)"
    r"(?: \(core dumped\))?$|^terminate called (?:after|without)"
    r"|: error while loading shared libraries: |^Fatal Python error: "
    r"|^(?!NVRM)[^\n]{1,400}: Assertion [`'\"][^\n]{1,400} failed\.?$"
    r"|Killed process \d+|line \d+:\s+\d+ (?:Killed|Bus error"
    r"|Segmentation fault|Aborted|Illegal instruction)"
    r"|^g?make.* Killed$|(?:died due to|terminated with|terminated by) signal"
    r"|Killed signal terminated|^Segmentation fault|^Bus error"
    # the linker
    r"|: undefined reference to |: multiple definition of |cannot find -l"
    r"|(?:^|/)ld(?:\.\w+)?: (?!warning|note|NOTE|skipping|.*: in function )"
    # the disk and the memory
    r"|No space left on device|Disk quota exceeded|Cannot allocate memory"
    r"|std::bad_alloc|virtual memory exhausted|Read-only file system"
    r"|Text file busy|Stale file handle|Too many open files|\bMemoryError\b"
    # git, and what asks it
    r"|^fatal: |fatal: detected dubious ownership|^error: RPC failed"
    r"|^ninja: fatal:"
    # resolvers and downloads
    r"|^[×x] No solution found|^[×x] Failed to (?:download|fetch|read)"
    r"|^ERROR: (?:Could not find a version|No matching distribution"
    r"|Cannot install|ResolutionImpossible|THESE PACKAGES DO NOT MATCH)"
    r"|^error: (?:Failed to (?:fetch|download|install|extract|read|unzip|create"
    r"|initialize)|Request failed|Could not connect|No interpreter found"
    r"|failed to remove)",
)

_REPORT = re.compile(
    r"^CMake Error|^(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Exit)(?::|$)"
    r"|^(?:[A-Za-z_]\w*\.)*Exception(?::|$)"
    # exceptions whose names end otherwise: they are told by their module
    r"|^(?:[a-z_]\w*\.)+[A-Z]\w+(?<!Warning): |^(?:[a-z_]\w*\.)+\w*Error\w*$"
    r"|^raise [A-Z]|^\w+: FATAL: |: Failed (?:to|with) |Exiting with failure status"
    r"|^(?:FATAL|E|FAILURE|fatal error|Fatal error|FATAL ERROR) ?: "
    r"|^(?:error|ERROR|Error)\b ?:|^\[ERROR\] |^g?make(?:\[\d+\])?: \*\*\* "
    r"|: Permission denied$|: command not found$|: not found$"
    r"|^error in \S+ setup command: |^\w+: fatal: "
    r"|: FAILED\b|^FAILED \(|^giving up\b|: giving up$"
    # builders, testers and packagers
    r"|^(?:BUILD FAILED|Build failed)|^(?:=+ )?[1-9]\d* (?:failed|errors?)[, ]"
    r"|^\w+: ERROR: |^FAILED tests?/|^scons: \*\*\* |^dpkg: error |unmet dependencies:$"
    r"|^npm (?:ERR!|error) |^--- FAIL: |^FAIL\s+\S+\s|^Exception in thread "
    r"|^(?:nginx: )?\[emerg\] |^Error! [A-Z]"
    r"|^BEGIN failed--compilation aborted|^Can't locate \S+\.pm in @INC"
    # services and containers: Go programs begin so
    r"|^(?:docker: )?Error (?:response )?from (?:the )?(?:daemon|server)\b"
    r"|^(?:[\w.-]{1,40}: )?failed to [a-z]+ [^\n]{1,300}: "
    r"|^(?:A dependency job|Job) for \S+ failed|: Failed with result '"
    r"|^rsync(?: error)?: (?:error: |\[\w+\] )?[^\n]{1,300}(?:failed|\(code \d+\))"
    # commands of a script
    r"|^cannot [a-z]+ ['\"`/][^\n]{1,300}: "
    r"|^(?:cp|mv|rm|ln|mkdir|tar|patch|touch|install|[\w./]*python[\d.]*): "
    r"(?:cannot|can't|\*{4}) |^tar: Error is not "
    r"|^(?:mount(?:\.\w+)?|umount|gpg|ssh|scp|sudo|su|podman|helm|modprobe|insmod): "
    r"(?!WARNING|warning|unable to resolve host)[^\n]{0,300}(?:failed|wrong fs|denied"
    r"|not permitted|No such|nvalid|refused|timed out)"
    r"|^Volume group \"[^\"\n]+\" has insufficient free space"
    r"|^zsh: (?:segmentation fault|abort|killed)|^\*\*\* [\w ]+ \*\*\*: terminated"
    r"|^/\S+: No module named ",
)
