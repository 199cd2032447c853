# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes CMake configure anew where its build folder belongs to other compilers.

CMake keeps the first C++ compiler that it met, whatever ``CXX`` says later, and on
another nvcc it empties its cache and forgets half of the options on the command line:
the architectures too, so that a build for sm_80 held sm_52. Objects may stay; ninja
compiles again what another command would make.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import regex as re

_ENTRY = re.compile(r"^(CMAKE_(?:CUDA|CXX)_COMPILER):\w+=(.+)$", re.MULTILINE)
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


def refresh(checkout: Path, env: Mapping[str, str]) -> list[str]:
    """Forget what CMake knows of other compilers; return one line for each folder.

    Only the cache and CMake's own notes on the compilers go, as ``cmake --fresh`` does.
    """
    said = []
    for cache in sorted(checkout.glob("build/temp*/CMakeCache.txt")):
        other = foreign(cache.read_text(errors="replace"), env)
        if other:
            for notes in (cache.parent / "CMakeFiles").glob("[0-9]*.[0-9]*"):
                shutil.rmtree(notes)
            cache.unlink()
            said.append(f"{cache.parent.name} was configured for {other}: anew")
    return said
