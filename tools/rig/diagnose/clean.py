# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A line as its program wrote it: without what terminals and collectors put round it.

Journals, container runtimes, CI systems, process groups and vLLM's own logger each put
something in front of a line, often several of them; pip and uv draw frames. All of it
is taken off, and who wrote the line is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import regex as re

from tools.rig.diagnose.foreign import english

LIMIT = 4000
"""Characters that are looked at together: a log without line ends is one long line."""

_OVERLAP = 500
_MOST = 400
"""Parts of one line that are looked at; of more, those at both ends."""


@dataclass(frozen=True)
class Line:
    """A cleaned line.

    ``number`` counts from 1. ``source`` is the process that wrote it as its prefix
    says (``Worker_TP0 pid=12``), else empty. ``depth`` orders processes: 0 a worker or
    an ordinary program, 1 an engine, 2 an API server. ``indent`` is the number of
    columns in front of the text; a line that goes on from the last one has some.
    ``width`` counts text and indentation.
    """

    number: int
    text: str
    source: str = ""
    depth: int = 0
    indent: int = 0
    width: int = 0


def clean(number: int, raw: str) -> list[Line]:
    """Return what a raw line says: one line, or several that overwrote each other."""
    text = raw.rstrip("\r\n")
    if text.startswith('{"log":'):
        text = _docker_json(text)
    text = unpainted(text)
    parts = [part for part in text.split("\r") if part.strip()] or [text[:0]]
    return [_one(number, piece) for part in parts for piece in _cut(part)]


def _cut(text: str) -> list[str]:
    if len(text) <= LIMIT:
        return [text]
    step = LIMIT - _OVERLAP
    starts: Sequence[int] = range(0, len(text) - _OVERLAP, step)
    if len(starts) > _MOST:
        starts = [*starts[: _MOST // 2], *starts[-_MOST // 2 :]]
    return [text[start : start + LIMIT] for start in starts]


def unpainted(text: str) -> str:
    """Return a text without colours, other terminal commands and zero bytes."""
    if "\x1b" in text or "\x00" in text or "\x08" in text:
        return str(_PAINT.sub("", text))
    return text


def unprefixed(text: str) -> str:
    """Return a text without the prefixes in front of it."""
    for _ in range(_LAYERS):
        found = _PREFIX.match(text)
        if found is None:
            break
        text = text[found.end() :]
    return text


def _docker_json(text: str) -> str:
    try:
        inner = json.loads(text).get("log", text)
    except (ValueError, AttributeError):
        return text
    return inner.rstrip("\r\n") if isinstance(inner, str) else text


def _one(number: int, text: str) -> Line:
    source = ""
    if text[:4].isspace() and _INDENTED.match(text):
        # pasted as a block of Markdown
        text = text.lstrip()
    for _ in range(_LAYERS):
        found = _PREFIX.match(text)
        if found is None:
            break
        if found["process"]:
            source = found["process"]
        text = text[found.end() :]
    width = len(text)
    bare = _FRAME.sub("", text)
    indent = len(text) - len(bare)
    if not bare.isascii():
        bare = bare.translate(_QUOTES)
    return Line(number, english(bare).rstrip(), source, _depth(source), indent, width)


def _depth(source: str) -> int:
    name = source.lower()
    if not name or "worker" in name or name.startswith("rank"):
        return 0
    return 1 if "engine" in name else 2


_PAINT = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00\x08]"
)

_LAYERS = 8
"""Prefixes that may stand in front of each other: journal, container, worker, ..."""

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
# syslog writes it in English, journalctl as the locale does: Okt, févr., авг, 9月
_MONTH = r"(?:(?!\d)\w{3,5}\.?|1?\d月)"

_PREFIX = re.compile(
    r"(?:"
    # time stamps: CI systems, containers, journalctl -o short-iso, Python's logging
    rf"(?:(?:DEFAULT|INFO|WARNING|ERROR|CRITICAL) )?\[?{_ISO}\]?(?: ?[-|:] | |$)"
    r"(?:(?:[A-Za-z_][\w.-]{0,60} [-|] )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [-|] "
    r"(?:std(?:err|out) [-|] )?"
    r"|(?:\[\d{1,7}\] )?\[ ?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL) ?\]:? )?"
    r"|\[\d\d:\d\d:\d\d(?:[.,]\d+)?\] "
    r"|\[resource\.labels\.[^\]]{1,80}\] "
    # syslog and the journal: date, host, unit or kernel
    rf"|{_MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"(?!(?:fatal|compiler) error: )[\w.-]+ "
    r"[^\s:\[\]]{1,60}(?:\[\d+\])?: "
    # or the date alone, and the numbers of cat, srun and mpirun
    rf"|{_MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"|\d{1,7}\t|\d{1,4}: (?!\d)|\[pod/[\w.-]{1,80}/[\w.-]{1,80}\] "
    r"|\[/[\w./-]{1,80}\]: "
    r"|[\w.-]{1,64} (?:kernel|[\w@.\\:/-]{1,60}\[\d+\]): "
    r"|(?:kernel|(?:python3?|bash|sh|vllm|docker|systemd|podman)\[\d+\]): "
    # the kernel's ring buffer
    r"|(?:<\d>)?\[\s{0,8}\d+\.\d+\](?:\[ ?T\d+\])? "
    rf"|\[{_DAY} {_MONTH} [ \d]\d [\d:]{{8}} \d{{4}}\] "
    # container runtimes, compose, image builds, CI
    r"|(?:stdout|stderr) [FP] |[A-Za-z][\w.-]{0,60} +\| |#\d+ (?:\d+\.\d+ )?"
    # the summary of a failed image build repeats its lines without the step
    r"|\d{1,6}\.\d{1,4} (?=[\s\w\[({<>/*'\"-])|E {3}(?=\S)"
    r"|##\[(?:error|warning|debug|group)\]|nox > |(?:> )+|\+\d\d:\d\d:\d\d "
    # who of several processes wrote it
    r"|\((?P<process>[A-Za-z_][\w.:-]{0,60}(?:,? \w+(?:=[\w.:-]+)?){0,4}"
    r"(?: pid=\d+)?)\)(?: |$)(?<=pid=\d{1,10}\) ?|rank=\d{1,5}\) ?|ip=[\d.]{1,40}\) ?)"
    r"|\[(?P<process>(?:rank|default)\d+)\]: ?|\[\d+,\d+\]<std(?:err|out)>: ?"
    # vLLM's own logger
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"(?:\[[^\]\s]{1,80}:\d+\](?: |$)|[\w./-]{1,80}:\d+\](?: |$))"
    r")"
)

_INDENTED = re.compile(
    rf"\s+(?:\[?{_ISO}|#\d+ \d+\.\d+ |{_MONTH} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d{1,6}\.\d{1,4} (?:[A-Z]+: |[a-z]+: |Err:|Get:))"
)

_FRAME = re.compile(r"^(?:[\s│├└╰╭╯╮┃▶]|─+[▶>]|\| +|\+-[+-]+ ?|> )+")

_QUOTES = str.maketrans(
    {**dict.fromkeys("‘’‚‛“”„«»‹›´「」", "'"), "\u00a0": " ", "\u202f": " "}
)
