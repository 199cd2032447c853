# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Programs that a build needs, and their versions.

A program that hangs or talks nonsense is a program with an unknown version, not a
crash: a broken ``cmake`` first on PATH is exactly what a doctor has to show.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.run import Result, run

PROBE_S = 10.0
"""Seconds that a program may take to say its version."""

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Program:
    """One program. ``version`` is empty and ``problem`` says why when it is unknown."""

    name: str
    path: Path
    version: str
    problem: str = ""


def find(
    name: str,
    env: Mapping[str, str],
    *,
    beside: Iterable[Path] | None = None,
    timeout: float = PROBE_S,
) -> Program | None:
    """Find a program and ask it for its version.

    Parameters
    ----------
    name
        Like ``cmake``; asked with ``--version``.
    env
        Its PATH is searched.
    beside
        More folders, searched after PATH; by default the one of the running Python,
        where the wheels of uv, cmake and ninja put their programs.
    timeout
        Seconds that it may take.

    Returns
    -------
    Program or None
        None when it is in none of the folders.
    """
    folders = [Path(sys.executable).parent] if beside is None else list(beside)
    path = env.get("PATH", os.defpath).split(os.pathsep)
    searched = os.pathsep.join([*path, *map(str, folders)])
    place = shutil.which(name, path=searched)
    return probe(name, Path(place), timeout=timeout) if place else None


def probe(name: str, path: Path, *, timeout: float = PROBE_S) -> Program:
    """Ask the program at `path` for its version with ``--version``."""
    answer = run([path, "--version"], timeout=timeout)
    problem = _problem(answer, timeout)
    if problem:
        return Program(name, path, "", problem)
    found = _VERSION.search(answer.out or answer.err)
    if not found:
        said = (answer.out or answer.err).strip().splitlines()[:1]
        what = f"{said[0][:60]!r}" if said else "nothing"
        return Program(name, path, "", f"answers --version with {what}")
    return Program(name, path, found[1])


def _problem(answer: Result, timeout: float) -> str:
    if answer.timed_out:
        return f"did not answer within {timeout:.0f} s"
    if not answer.ok:
        said = (answer.err or answer.out).strip().splitlines()
        line = (
            said[-1] if said and said[0].startswith("Traceback") else "".join(said[:1])
        )
        why = f": {line[:80]}" if line else ""
        return f"does not run (status {answer.code}){why}"
    return ""
