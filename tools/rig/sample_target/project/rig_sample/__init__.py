# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A CUDA extension in miniature.

It says what was compiled into it, and proves its kernels where there is a GPU.

>>> import rig_sample
>>> rig_sample.info()["arch_list"]
'7.0'
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from typing_extensions import TypedDict

from rig_sample import _C, _host

__all__ = ["Info", "Proof", "__version__", "info", "run"]

__version__ = metadata.version("rig-sample")


class Info(TypedDict):
    """What was compiled in: the arch list as given, both compilers, and the library."""

    version: str
    arch_list: str
    nvcc: str
    host_compiler: str
    library: str


class Proof(TypedDict):
    """What a run computed: the GPU's name and sm, and how many values were compared."""

    device: str
    sm: int
    checked: int


def info() -> Info:
    """Return what this build is made of; needs no GPU."""
    arch_list, nvcc = _C.compiled()
    return {
        "version": __version__,
        "arch_list": arch_list,
        "nvcc": nvcc,
        "host_compiler": _host.compiler(),
        "library": str(Path(_C.__file__)),
    }


def run() -> Proof:
    """Run both kernels on the first GPU and compare every result with the host's.

    Raises
    ------
    RuntimeError
        When there is no GPU, a launch fails (this build holds no code for it), or a
        result is wrong.
    """
    device, sm, checked = _C.prove()
    return {"device": device, "sm": sm, "checked": checked}
