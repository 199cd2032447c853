# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Libraries that the loader would meet: a stub of the driver, copies of cuDNN."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

_CUDNN_FILE = re.compile(r"^libcudnn\.so\.(\d+\.\d+(?:\.\d+)*)$")
_CUDNN_DIST = re.compile(r"^nvidia_cudnn_cu\d+-(\d+(?:\.\d+)+)\.dist-info$")
_STUB_MAX = 1 << 20
"""A toolkit's stub of libcuda is tens of KB; the driver's own is tens of MB."""

SYSTEM_FOLDERS = (
    Path("/usr/lib/x86_64-linux-gnu"),
    Path("/usr/lib64"),
    Path("/usr/local/cuda/lib64"),
)


@dataclass(frozen=True)
class Cudnn:
    """One copy of cuDNN: its version, where it lies and how a program comes to it.

    ``origin`` is ``LD_LIBRARY_PATH``, ``environment`` or ``system``. A torch wheel
    meets the first two; the system's own copy comes after the one that the wheel
    brings.
    """

    version: str
    place: Path
    origin: str


def stubs(env: Mapping[str, str]) -> list[Path]:
    """Return stubs of libcuda that ``LD_LIBRARY_PATH`` puts before the real driver.

    A program that loads one is told that no driver is there (CUDA error 34). Stubs
    belong on the linker's path (``LIBRARY_PATH``, ``-L``) only.
    """
    found = []
    for folder in _entries(env):
        for name in ("libcuda.so.1", "libcuda.so"):
            with contextlib.suppress(OSError):
                file = folder / name
                if file.stat().st_size < _STUB_MAX:
                    found.append(file)
    return found


def cudnn(
    env: Mapping[str, str],
    environment: Path | None = None,
    system: Iterable[Path] = SYSTEM_FOLDERS,
) -> list[Cudnn]:
    """Return every copy of cuDNN that a program here could load.

    Parameters
    ----------
    env
        Its ``LD_LIBRARY_PATH`` comes first, as for the loader.
    environment
        A Python environment; the wheel inside it is found by its metadata, since its
        libraries carry no full version in their names.
    system
        Folders that the loader searches by itself.
    """
    found = []
    for folder in _entries(env):
        found += _matching(folder, _CUDNN_FILE, "LD_LIBRARY_PATH")
    if environment is not None:
        for packages in sorted(environment.glob("lib/python3*/site-packages")):
            found += _matching(packages, _CUDNN_DIST, "environment")
    for folder in system:
        found += _matching(folder, _CUDNN_FILE, "system")
    return found


def _matching(folder: Path, pattern: re.Pattern[str], origin: str) -> list[Cudnn]:
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
        matches = [(pattern.match(name), folder / name) for name in names]
        return [Cudnn(found[1], place, origin) for found, place in matches if found]
    return []


def _entries(env: Mapping[str, str]) -> list[Path]:
    return [Path(p) for p in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p]
