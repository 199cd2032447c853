# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Python interpreters of this machine, and which of them a target can be built with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tools.rig.base import run

PROBE_S = 20.0
"""Seconds that an interpreter gets to say its version."""

_NAME = re.compile(r"python3(\.\d+)?")

_ASK = """\
import json, os, platform, sys, sysconfig
include = sysconfig.get_path("include") or ""
print(json.dumps({
    "version": platform.python_version(),
    "base": os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable),
    "implementation": sys.implementation.name,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "wide": sys.maxsize > 2**32,
    "headers": os.path.isfile(os.path.join(include, "Python.h")),
}))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter.

    ``path`` is the base interpreter, never one inside a virtual environment.
    ``version`` is empty when it did not answer; ``problem`` says why it cannot serve.
    ``headers`` tells whether Python.h is there, which extensions are compiled with.
    """

    path: Path
    version: str
    origin: str
    headers: bool = True
    problem: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor number; (0, 0) when unknown."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)


Run = Callable[..., run.Result]


def probe(
    path: Path, origin: str, *, timeout: float = PROBE_S, ask: Run = run.run
) -> Python:
    """Ask an interpreter what it is.

    Parameters
    ----------
    path
        The program.
    origin
        Where it was found.
    timeout
        Seconds.
    """
    got = ask([path, "-I", "-c", _ASK], timeout=timeout, cwd="/")
    if got.timed_out:
        return Python(path, "", origin, False, f"no answer within {timeout:.0f} s")
    try:
        said = json.loads(got.out)
        base, version = Path(said["base"]), str(said["version"])
        headers = bool(said["headers"])
        reasons = [
            (said["implementation"] != "cpython", f"it is {said['implementation']}"),
            (said["free_threaded"], "it is a free-threaded build"),
            (not said["wide"], "it is a 32-bit build"),
        ]
    except (ValueError, KeyError, TypeError):
        last = (got.err.strip().splitlines() or [f"exit status {got.code}"])[0]
        return Python(path, "", origin, False, f"it does not work: {last}")
    problem = next((text for bad, text in reasons if bad), "")
    return Python(base, version, origin, headers, problem)


def find(
    env: Mapping[str, str],
    uv: Path | None = None,
    *,
    timeout: float = PROBE_S,
    ask: Run = run.run,
    system: Sequence[Path] = (Path("/usr/local/bin"), Path("/usr/bin")),
    enough: Callable[[Python], bool] = lambda python: False,
) -> list[Python]:
    """Return the interpreters that can be found, each once, in the order of finding.

    Parameters
    ----------
    env
        ``PATH``, ``HOME`` and ``PYENV_ROOT`` are looked at.
    uv
        Asked for the Pythons that it manages; it downloads nothing.
    timeout
        Seconds for each of them.
    system
        Folders that are searched although they are not on the path.
    enough
        Ends the search when it is true of an interpreter.
    """
    found: dict[Path, Python] = {}
    seen: set[Path] = set()
    for path, origin in _candidates(env, uv, system, timeout, ask):
        real = Path(os.path.realpath(path))
        if real in seen:
            continue
        seen.add(real)
        python = probe(path, origin, timeout=timeout, ask=ask)
        found.setdefault(Path(os.path.realpath(python.path)), python)
        if enough(python):
            break
    return list(found.values())


def admits(requires_python: str, version: str) -> bool:
    """Return whether a target's ``requires-python`` lets a version in.

    A specifier that cannot be read lets everything in: the target's own build will say
    what it thinks of it.
    """
    try:
        return SpecifierSet(requires_python).contains(
            Version(version), prereleases=True
        )
    except InvalidVersion:
        return False
    except InvalidSpecifier:
        return True


def choose(
    pythons: Iterable[Python],
    wanted: str,
    requires_python: str = "",
    *,
    need_headers: bool = False,
) -> Python | None:
    """Return the interpreter to build with, or None.

    Parameters
    ----------
    pythons
        Those that were found.
    wanted
        A version such as ``3.12``. Its interpreters come first, then the nearest
        release, the newer one of two.
    requires_python
        What the target asks for.
    need_headers
        Leave out those without Python.h, which are otherwise only second choice.
    """
    able = [
        p
        for p in pythons
        if not p.problem
        and (p.headers or not need_headers)
        and admits(requires_python, p.version)
    ]

    def rank(python: Python) -> tuple[bool, bool, int, int]:
        aim = re.match(r"(\d+)\.(\d+)", wanted)
        gap = python.release[1] - int(aim[2]) if aim else 0
        return not fits(python, wanted), not python.headers, abs(gap), -gap

    return min(able, key=rank, default=None)


def fits(python: Python, wanted: str) -> bool:
    """Return whether an interpreter is of the wanted version (``3.12``, ``3.12.4``)."""
    return (python.version + ".").startswith(wanted.rstrip(".") + ".")


def _candidates(
    env: Mapping[str, str],
    uv: Path | None,
    system: Sequence[Path],
    timeout: float,
    ask: Run,
) -> Iterable[tuple[Path, str]]:
    for folder in env.get("PATH", "").split(os.pathsep):
        # a version manager's shims are slow scripts; what they start is listed below
        if folder.startswith("/") and Path(folder).name != "shims":
            for path in _in_folder(Path(folder)):
                yield path, "PATH"
    if uv is not None:
        for path in _managed(uv, env, timeout, ask):
            yield path, "uv"
    for top in system:
        for path in _in_folder(top):
            yield path, str(top)
    home = Path(env.get("HOME") or "/nonexistent")
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv")
    for top, below in (
        (pyenv, "versions"),
        (home / ".asdf", "installs/python"),
        (home / ".local/share/mise", "installs/python"),
    ):
        for version in _listed(top / below):
            for path in _in_folder(version / "bin"):
                yield path, str(top)


def _managed(uv: Path, env: Mapping[str, str], timeout: float, ask: Run) -> list[Path]:
    got = ask(
        [
            uv,
            "python",
            "list",
            "--only-installed",
            "--managed-python",
            "--no-python-downloads",
            "--offline",
            "--no-cache",
            "--output-format",
            "json",
        ],
        env=dict(env),
        timeout=timeout,
        cwd="/",
    )
    try:
        return [Path(row["path"]) for row in json.loads(got.out) if row.get("path")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _in_folder(folder: Path) -> list[Path]:
    return [
        path
        for path in _listed(folder)
        if _NAME.fullmatch(path.name) and os.access(path, os.X_OK) and path.is_file()
    ]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
