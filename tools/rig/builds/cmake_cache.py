# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes CMake configure anew where its build folder belongs to another build.

CMake keeps the first C++ compiler that it met, whatever ``CXX`` says later, and on
another nvcc it empties its cache and forgets half of the options on the command line:
the architectures too, so that a build for sm_80 held sm_52. Objects may stay; ninja
compiles again what another command would make. A cache that was made elsewhere, in a
checkout that was moved or copied, CMake refuses.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import regex as re

from tools.rig.base.errors import unwritable

_ENTRY = re.compile(r"^(CMAKE_(?:CUDA|CXX)_COMPILER):\w+=(.+)$", re.MULTILINE)
_PLACE = re.compile(
    r"^(CMAKE_CACHEFILE_DIR|CMAKE_HOME_DIRECTORY):\w+=(.+)$", re.MULTILINE
)
_VARIABLES = {
    "CMAKE_CUDA_COMPILER": ("CUDACXX",),
    "CMAKE_CXX_COMPILER": ("CXX", "CUDAHOSTCXX"),
}


def foreign(cache: str, env: Mapping[str, str]) -> str:
    """Say which compiler in a CMakeCache.txt is another than the build's, or nothing.

    Parameters
    ----------
    cache
        The file's text.
    env
        The build's environment: ``CUDACXX`` and ``CXX`` name its compilers, without
        ``CXX`` the host compiler of nvcc is the C++ compiler too.
    """
    for name, value in _ENTRY.findall(cache):
        wanted = next((env[v] for v in _VARIABLES[name] if env.get(v)), "")
        if wanted and os.path.realpath(value) != os.path.realpath(wanted):
            return str(value)
    return ""


def moved(cache: str, folder: Path, checkout: Path) -> str:
    """Say which other place a CMakeCache.txt was made for, or nothing.

    Parameters
    ----------
    cache
        The file's text.
    folder
        Where it lies now.
    checkout
        The checkout; its CMakeLists.txt may lie in a folder below.
    """
    home = os.path.realpath(checkout)
    for name, value in _PLACE.findall(cache):
        if name == "CMAKE_CACHEFILE_DIR":
            here = _same(value, folder)
        else:
            below = os.path.realpath(value).startswith(home + os.sep)
            here = below or _same(value, checkout)
        if not here:
            return str(value)
    return ""


def _same(one: str, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    # CMake compares files too: one folder may be mounted under two names
    return os.path.isdir(one) and os.path.samefile(one, other)


def refresh(checkout: Path, env: Mapping[str, str]) -> list[str]:
    """Forget caches of other compilers or places; return one line for each folder.

    Only the cache and CMake's own notes on the compilers go, as ``cmake --fresh`` does.

    Raises
    ------
    StepFailed
        When one that must go cannot be read or removed.
    """
    said = []
    for cache in sorted(checkout.glob("build/temp*/CMakeCache.txt")):
        try:
            # paths in it keep their bytes, whatever the locale
            text = cache.read_text(encoding="utf-8", errors="surrogateescape")
            other = moved(text, cache.parent, checkout) or foreign(text, env)
            if other:
                for notes in (cache.parent / "CMakeFiles").glob("[0-9]*.[0-9]*"):
                    shutil.rmtree(notes)
                cache.unlink()
        except OSError as exc:
            raise unwritable(cache, exc) from exc
        if other:
            said.append(f"{cache.parent.name} was configured for {other}: anew")
    return said
