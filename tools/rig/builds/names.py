# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Signs that the tools below cannot take in a path, refused before anything is made.

Blanks, single quotes and letters of any script are welcome. Measured with CMake 4.4,
nvcc 12.4, uv 0.13 and a source file, a build folder or a TMPDIR of such a name;
``PATH`` and Python's own venv module rule the colon out.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tools.rig.base.errors import UsageError

CMAKE = '"\\;|[]<>'
"""Signs with which CMake cannot configure or build (brackets: not with CUDA)."""

NVCC = "$`"
"""Signs that nvcc hands to a shell between double quotes."""

NVCC_TEMP = ","
"""A sign at which nvcc splits the names of its temporary files."""

UV = "#"
"""A sign after which uv reads a comment, in a ``file://`` address too."""

SETUPTOOLS = "{}"
"""Signs between which setuptools looks for a variable when it installs."""

PATH = ":"
"""A sign that divides the entries of PATH."""


def check(checkout: Path, root: Path) -> None:
    """Refuse a checkout or a state root that no build can succeed in.

    Raises
    ------
    UsageError
        With the sign and whom it stops.
    """
    quoted = shlex.quote(os.fspath(checkout))
    common = {"CMake": CMAKE, "uv": UV, "setuptools": SETUPTOOLS}
    _refuse(checkout, {**common, "nvcc": NVCC}, f"mv {quoted} PLAIN-NAME")
    hint = "export ONECAT_LOCAL_ROOT=/a/folder/with/a/plain/name"
    _refuse(root, {**common, "nvcc": NVCC + NVCC_TEMP, "PATH": PATH}, hint)


def _refuse(path: Path, signs: dict[str, str], hint: str) -> None:
    for tool, bad in signs.items():
        found = [sign for sign in bad if sign in os.fspath(path)]
        if found:
            raise UsageError(
                f"the path {path} holds {found[0]}, with which {tool} cannot work",
                usual="Blanks, single quotes and letters of any script do no harm.",
                hint=hint,
            )
