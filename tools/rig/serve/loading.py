# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How far a server has come, from its log: new lines as they come, in a few words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import regex as re

from tools.rig.base import regular_file

_MOST = 1 << 20
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bversion v?(?P<a>\d+\.\d\S*)\s*$"), "vLLM {a} starts"),
    (
        re.compile(r"Initializing a V\d LLM engine|Initializing an LLM engine"),
        "the engine starts",
    ),
    (re.compile(r"Starting to load model"), "loading the weights"),
    (
        re.compile(r"Loading \w+ checkpoint shards:\s+(?P<a>\d+)% Completed"),
        "loading the weights: {a} %",
    ),
    (
        re.compile(r"Loading weights took (?P<a>[\d.]+) s"),
        "the weights are loaded ({a} s)",
    ),
    (
        re.compile(r"Start(?:ing)? (?:to )?compil|Dynamo bytecode"),
        "compiling the graph",
    ),
    (
        re.compile(r"torch\.compile took (?P<a>[\d.]+) s"),
        "the graph is ready ({a} s)",
    ),
    (
        re.compile(r"KV cache size: (?P<a>[\d,]+) tokens"),
        "room for {a} tokens in the KV cache",
    ),
    (
        re.compile(r"Captur\w+ (?:CUDA graph\w*|cudagraph\w*)[^:]*:\s+(?P<a>\d+)%"),
        "capturing graphs: {a} %",
    ),
    (re.compile(r"init engine .* took (?P<a>[\d.]+) s"), "the engine is ready ({a} s)"),
    (re.compile(r"Application startup complete"), "the server listens"),
)


class Follower:
    """Reads what a log gained since the last look, also across its rotation."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._inode = 0
        self._at = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the new whole lines; none where there is no log yet."""
        data = b""
        try:
            with regular_file.opened(self.log) as fh:
                facts = os.fstat(fh.fileno())
                if facts.st_ino != self._inode:
                    data += self._end_of_old()
                    self._inode, self._at = facts.st_ino, 0
                elif facts.st_size < self._at:
                    # somebody emptied it
                    self._at = 0
                fh.seek(self._at)
                piece = fh.read(_MOST)
                self._at += len(piece)
                data += piece
        except OSError:
            return []
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole if line]

    def _end_of_old(self) -> bytes:
        old = self.log.with_name(f"{self.log.name}.1")
        try:
            with regular_file.opened(old) as fh:
                if self._inode and os.fstat(fh.fileno()).st_ino == self._inode:
                    fh.seek(self._at)
                    return fh.read()
        except OSError:
            pass
        return b""


def stage(lines: Iterable[str]) -> str:
    """Return the newest stage that the lines name, or ""."""
    found = ""
    for line in lines:
        for pattern, words in _STAGES:
            match = pattern.search(line)
            if match is not None:
                found = words.format(**match.groupdict())
    return found


def version(lines: Iterable[str]) -> str:
    """Return the version of vLLM that the lines name, or ""."""
    pattern = _STAGES[0][0]
    found = (pattern.search(line) for line in lines)
    return next((str(match["a"]) for match in found if match), "")
