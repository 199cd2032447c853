# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which Python the environment gets: a pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.errors import CannotError, StepFailed, put_aside
from tools.rig.host import pythons
from tools.rig.host.pythons import Python


@dataclass(frozen=True)
class Wish:
    """What profile, user and target ask for.

    ``version`` as in ``3.12``; ``by_user`` makes it a must; ``named`` is an interpreter
    that the user named; ``requires`` is the target's requires-python; ``need_headers``
    leaves out interpreters without Python.h.
    """

    version: str
    by_user: bool = False
    named: Python | None = None
    requires: str = ""
    need_headers: bool = False
    offline: bool = False


@dataclass(frozen=True)
class Choice:
    """``installed`` is taken, or, with ``download``, what is taken when that fails."""

    installed: Python | None
    download: str = ""
    why: str = ""

    def __str__(self) -> str:
        here = (
            f"{self.installed.version} ({self.installed.path})"
            if self.installed
            else ""
        )
        if self.download:
            return f"{self.download} brought by uv" + (f", else {here}" if here else "")
        return here


def decide(wish: Wish, found: Sequence[Python]) -> Choice:
    """Choose the Python for a new environment.

    Raises
    ------
    CannotError
        When none will do, with what to install.
    """
    if wish.named is not None:
        return Choice(_usable(wish, wish.named))
    best = pythons.choose(
        found, wish.version, wish.requires, need_headers=wish.need_headers
    )
    if best is not None and pythons.fits(best, wish.version):
        return Choice(best)
    if wish.by_user:
        _need_admitted(wish)
    if pythons.admits(wish.requires, _whole(wish.version)) and not wish.offline:
        fallback = None if wish.by_user else best
        return Choice(fallback, wish.version, f"no Python {wish.version} is installed")
    if best is not None and not wish.by_user:
        return Choice(best, why=f"no Python {wish.version} is installed")
    raise missing(wish, found)


def keep(wish: Wish, version: str, environment: Path) -> Choice:
    """Keep the Python of an environment that is there.

    Raises
    ------
    CannotError
        When the user asks for one that the target does not admit.
    StepFailed
        When the target does not admit it, or the user asks for another one.
    """
    there = Python(environment / "bin/python", version, "environment")
    wanted = wish.named.version if wish.named else wish.version
    other = (wish.by_user or wish.named is not None) and not pythons.fits(there, wanted)
    if other:
        # an environment that works is not to make room for one that never will
        if wish.named is None:
            _need_admitted(wish)
        elif not pythons.admits(wish.requires, wanted):
            _usable(wish, wish.named)
    if other or not pythons.admits(wish.requires, version):
        asked = f"Python {wanted}" if other else f"requires-python {wish.requires}"
        raise StepFailed(
            f"the environment {environment} has Python {version}, asked is {asked}",
            usual="It is not replaced, since somebody may be using it.",
            hint=put_aside(environment),
        )
    return Choice(there)


def _need_admitted(wish: Wish) -> None:
    """Refuse a version that the user asks for and the target never takes."""
    if not pythons.admits(wish.requires, _whole(wish.version)):
        raise CannotError(
            f"the target does not admit Python {wish.version}",
            usual=f"Its requires-python is {wish.requires}.",
            hint="unset ONECAT_PYTHON",
        )


def missing(wish: Wish, found: Sequence[Python], reason: str = "") -> CannotError:
    """Return the error that says which Python to install."""
    bare = [
        p
        for p in found
        if wish.need_headers
        and not p.problem
        and not p.headers
        and pythons.admits(wish.requires, p.version)
    ]
    details = [f"{p.path}: {p.version or '?'} {p.problem}".rstrip() for p in found]
    details += [f"uv could not bring it: {reason}"] if reason else []
    if bare:
        release = ".".join(map(str, bare[0].release))
        return CannotError(
            f"Python {release} is here without its headers (Python.h)",
            details=details,
            usual="Extensions are compiled with them.",
            hint=f"apt-get install python{release}-dev",
        )
    asked = wish.requires or f"{wish.version}"
    return CannotError(
        f"no Python that will do (asked: {wish.version}, the target admits {asked})",
        details=details,
        hint=f"apt-get install python{wish.version} python{wish.version}-dev",
    )


def _usable(wish: Wish, named: Python) -> Python:
    problem = named.problem
    if not problem and not pythons.admits(wish.requires, named.version):
        problem = f"it is {named.version}, the target asks for {wish.requires}"
    if not problem and wish.need_headers and not named.headers:
        problem = "its headers (Python.h) are not installed"
    if problem:
        raise CannotError(
            f"{named.path} cannot be used: {problem}", hint="unset ONECAT_PYTHON"
        )
    return named


def _whole(version: str) -> str:
    """Turn ``3.12`` into a release that ``>=3.12.4`` is not held against."""
    return version if version.count(".") >= 2 else f"{version}.99"
