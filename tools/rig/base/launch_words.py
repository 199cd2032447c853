# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a compiler's command line says: whether it compiles, from what, to what.

Read by :mod:`tools.rig.base.launch`, whose every millisecond is paid once a compile:
nothing is imported here that Python has not loaded before.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    # of Python's own, only what has been loaded before us is free
    from collections.abc import Sequence

CACHES = ("ccache", "sccache")

SCRIPT = "rig-cache"
"""Stands for the cache that ``RIG_CACHE`` names (see :mod:`tools.rig.base.near`)."""

_COMPILES = frozenset({"-c", "--compile", "-dc", "--device-c", "-dw", "--device-w"})
_LOOKS = frozenset(
    {
        "-E",
        "--preprocess",
        "-M",
        "-MM",
        "--generate-dependencies",
        "--generate-nonsystem-dependencies",
        "-fsyntax-only",
        "--dryrun",
        "-dryrun",
        "--version",
    }
)
_OUTPUTS = ("-o", "--output-file")
_KINDS = {
    ".cu": "cuda",
    ".c": "c",
    ".cc": "cxx",
    ".cpp": "cxx",
    ".cxx": "cxx",
    ".c++": "cxx",
    ".C": "cxx",
    ".hip": "cuda",
}


class Compile:
    """One compile: its object, its source, the kind of that, and the cache's name."""

    __slots__ = ("cache", "kind", "object", "source")

    def __init__(self, made: str, source: str, kind: str, cache: str) -> None:
        self.object = made
        self.source = source
        self.kind = kind
        self.cache = cache


def read(words: Sequence[str], cwd: str = "", cache: str = "") -> Compile | None:
    """Return what a command line compiles, or None when it compiles nothing large.

    Preprocessing, questions and the probes that CMake makes while it configures count
    as nothing.

    Parameters
    ----------
    words
        The command, with the compile cache in front where there is one.
    cwd
        Where it runs: CMake's probes have folders of their own.
    cache
        The program that the suite's own script starts, if it does.
    """
    given = set(words)
    if not given & _COMPILES or given & _LOOKS:
        return None
    made = _output(words)
    if not made.endswith((".o", ".obj")) or _probe(made, cwd):
        return None
    source, kind = _source(words)
    program = os.path.basename(words[0])
    if program == SCRIPT:
        program = os.path.basename(cache)
    return Compile(made, source, kind, program if program in CACHES else "")


def _output(words: Sequence[str]) -> str:
    for at, word in enumerate(words):
        if word in _OUTPUTS:
            return words[at + 1] if at + 1 < len(words) else ""
        for name in _OUTPUTS:
            if word.startswith(f"{name}="):
                return word[len(name) + 1 :]
    return ""


def _probe(made: str, cwd: str) -> bool:
    inside = f"{cwd}/{made}"
    return any(
        name in inside
        for name in ("/cmTC_", "/CMakeScratch/", "/CMakeTmp/", "/CompilerId")
    )


def _source(words: Sequence[str]) -> tuple[str, str]:
    for at, word in enumerate(words[:-1]):
        # CMake and torch both name the source right behind the flag
        if word in _COMPILES and (kind := _kind(words[at + 1])):
            return words[at + 1], kind
    named = [w for w in words[1:] if not w.startswith("-") and _kind(w)]
    return (named[-1], _kind(named[-1])) if named else ("", "cxx")


def _kind(word: str) -> str:
    return _KINDS.get(os.path.splitext(word)[1], "")
