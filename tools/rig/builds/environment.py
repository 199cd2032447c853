# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The environment variables of a build: the user's, extended by what we know.

The rule for each variable is one of three: a value that the user has set stands
(``TMPDIR``, ``UV_CACHE_DIR``, ``FETCHCONTENT_BASE_DIR``, caches, the profile's own
variables), it is extended in front (``PATH``, ``NVCC_PREPEND_FLAGS``), or it would send
the build's files elsewhere and is dropped (``DESTDIR``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds import compile_cache
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.profile import Profile

_NAMED = {"Volta": ("7.0",), "Turing": ("7.5",), "Ampere": ("8.0", "8.6")}
"""Names that torch takes in place of numbers (``torch/utils/cpp_extension.py``)."""


ASTRAY = (
    "DESTDIR",
    "CMAKE_INSTALL_PREFIX",
    "CMAKE_INSTALL_MODE",
    "CMAKE_STAGING_PREFIX",
    "INSTALL_ROOT",
    "PREFIX",
)
"""Variables that send what a build installs elsewhere, or make links of it: the wheel
is packed from where it belongs, and would lack it."""


@dataclass(frozen=True)
class Places:
    """Where a build puts things.

    ``home`` is the link to the environment in force, ``bench`` the environment that
    things are compiled in, ``generation`` the new one that is made.
    """

    checkout: Path
    home: Path
    bench: Path
    generation: Path
    tmp: Path
    deps: Path
    cache: Path


@dataclass(frozen=True)
class Composed:
    """What to add to the user's environment, and lines worth saying about it."""

    add: Mapping[str, str]
    notes: tuple[str, ...] = field(default=())


def compose(
    user: Mapping[str, str],
    profile: Profile,
    places: Places,
    jobs: int,
    toolchain: Mapping[str, str],
    git: Mapping[str, str],
    cache: CompileCache | None = None,
) -> Composed:
    """Return the variables that a build gets beside the user's own.

    Parameters
    ----------
    user
        The user's environment.
    profile, places, jobs
        What is built, where, and with how many compiles at once.
    toolchain
        What ``cuda-toolkit`` and ``shim-glibc`` found (its ``PATH`` is extended).
    git
        What ``git-safe`` found.
    cache
        The compile cache that is chosen.

    Raises
    ------
    CannotError
        When the user's own architecture list leaves out the profile's cards.
    """
    notes = []
    add = {**toolchain, **git}
    path = add.get("PATH", user.get("PATH", os.defpath))
    add["PATH"] = f"{places.bench / 'bin'}{os.pathsep}{path}"
    add["VIRTUAL_ENV"] = str(places.bench)
    add["MAX_JOBS"] = str(jobs)
    add["TORCH_CUDA_ARCH_LIST"] = arch_list(user, profile)
    defaults = {
        "TMPDIR": str(places.tmp),
        "UV_CACHE_DIR": str(places.cache / "uv"),
        "FETCHCONTENT_BASE_DIR": str(places.deps),
        **profile.env,
    }
    if cache:
        defaults |= compile_cache.defaults(cache, places.cache, places.checkout)
        notes += [cache.note] if cache.note else []
    for name, value in defaults.items():
        if user.get(name):
            if user[name] != value:
                notes.append(f"{name}={user[name]} is yours and stays")
        else:
            add[name] = value
    return Composed(add, (*notes, *astray(user)))


def astray(user: Mapping[str, str]) -> list[str]:
    """Return a line for each variable of the user's that a build must not see."""
    return [
        f"{name}={user[name]} is dropped for the build: it would install elsewhere"
        for name in ASTRAY
        if user.get(name)
    ]


def check_tmpdir(user: Mapping[str, str]) -> None:
    """Refuse a ``TMPDIR`` that no compiler can write to.

    nvcc fails there with words that do not name the variable.

    Raises
    ------
    UsageError
        When it is set, and is no folder or cannot be written to.
    """
    given = user.get("TMPDIR")
    if not given:
        return
    if not os.path.isdir(given):
        raise UsageError(f"TMPDIR={given} is no folder", hint="unset TMPDIR")
    if not os.access(given, os.W_OK | os.X_OK):
        raise UsageError(f"TMPDIR={given} cannot be written to", hint="unset TMPDIR")


def arch_list(user: Mapping[str, str], profile: Profile) -> str:
    """Return the architectures to build for: the user's own list, or the profile's.

    Raises
    ------
    CannotError
        When the user's list leaves out the profile's cards.
    """
    given = user.get("TORCH_CUDA_ARCH_LIST", "")
    if not given:
        return profile.arch_list
    words = given.replace(";", " ").replace(",", " ").split()
    plain = {a for w in words for a in _NAMED.get(w, (w.removesuffix("+PTX"),))}
    lacking = [a for a in _numbers(profile) if a not in plain]
    if lacking:
        raise CannotError(
            f"TORCH_CUDA_ARCH_LIST={given} leaves out {lacking[0]}, "
            f"which profile {profile.name} is for",
            hint="unset TORCH_CUDA_ARCH_LIST",
        )
    return given


def _numbers(profile: Profile) -> list[str]:
    return [f"{sm // 10}.{sm % 10}" for sm in profile.sms]
