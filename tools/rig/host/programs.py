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
# below 3.10 no target of ours runs, and a version manager puts a slow script for each
_PYTHON = re.compile(r"^python3(?:\.\d\d)?$")
_PYTHON_FACTS = (
    "import importlib.util as u, os, sys, sysconfig as s;"
    "print('rig', '%d.%d.%d' % sys.version_info[:3],"
    " bool(u.find_spec('venv') and u.find_spec('ensurepip')),"
    " os.path.exists(os.path.join(s.get_path('include'), 'Python.h')))"
)


@dataclass(frozen=True)
class Program:
    """One program. ``version`` is empty and ``problem`` says why when it is unknown."""

    name: str
    path: Path
    version: str
    problem: str = ""


@dataclass(frozen=True)
class Python:
    """One Python interpreter.

    ``venv`` says whether it can make an environment with pip (Debian packages that
    apart), ``headers`` whether an extension can be compiled for it.
    """

    path: Path
    version: str
    venv: bool = False
    headers: bool = False
    problem: str = ""

    @property
    def minor(self) -> str:
        """Major and minor version, like ``3.12``."""
        return ".".join(self.version.split(".")[:2])


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


def pythons(
    env: Mapping[str, str],
    *,
    managed: Path | None = None,
    timeout: float = PROBE_S,
) -> list[Python]:
    """Return every Python 3 on PATH and every one that uv has installed.

    Parameters
    ----------
    env
        Its PATH is searched; ``UV_PYTHON_INSTALL_DIR`` and ``XDG_DATA_HOME`` say where
        uv keeps its own, ``HOME`` otherwise.
    managed
        uv's folder, when it is known already.
    timeout
        Seconds that each may take.

    Returns
    -------
    list of Python
        In the order of PATH, uv's last; one entry for each real interpreter. Those that
        do not answer (a version manager's stand-in for a version that is not installed)
        carry a ``problem``.
    """
    seen: set[Path] = set()
    found = []
    for path in _python_paths(env, managed):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        found.append(probe_python(path, timeout=timeout))
    return found


def probe_python(path: Path, *, timeout: float = PROBE_S) -> Python:
    """Ask an interpreter for its version, its venv module and its headers."""
    answer = run([path, "-I", "-c", _PYTHON_FACTS], timeout=timeout)
    problem = _problem(answer, timeout)
    words = answer.out.split()
    if not problem and (len(words) != 4 or words[0] != "rig"):
        problem = "does not answer like a Python 3"
    if problem:
        return Python(path, "", problem=problem)
    return Python(path, words[1], words[2] == "True", words[3] == "True")


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


def _python_paths(env: Mapping[str, str], managed: Path | None) -> Iterable[Path]:
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        # an empty entry means the current folder, where a checkout may hold anything
        if not folder:
            continue
        try:
            names = sorted(n for n in os.listdir(folder) if _PYTHON.match(n))
        except OSError:
            continue
        for name in names:
            if os.access(os.path.join(folder, name), os.X_OK):
                yield Path(folder, name)
    place = managed or _uv_pythons(env)
    if place.is_dir():
        yield from sorted(place.glob("cpython-*/bin/python3"), reverse=True)


def _uv_pythons(env: Mapping[str, str]) -> Path:
    if env.get("UV_PYTHON_INSTALL_DIR"):
        return Path(env["UV_PYTHON_INSTALL_DIR"])
    data = env.get("XDG_DATA_HOME") or os.path.join(
        env.get("HOME", "/"), ".local/share"
    )
    return Path(data, "uv", "python")
