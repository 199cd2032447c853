# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The program ``rig-admit`` that stands in front of compilers: made, and named to them.

Its path is part of every command line that ninja remembers, so it never changes while
the folder does not; its content may. The parts it runs are copied beside it: a checkout
that moves to another commit in the middle of a build changes nothing for that build,
and the compiled files are there for every start.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import secrets
import sys
from pathlib import Path

from tools.rig.base.errors import unwritable
from tools.rig.base.state import put

NAME = "rig-admit"
_BASE = Path(__file__).parents[2] / "base"
_LONGEST_FIRST_LINE = 120
"""Bytes; kernels before 5.1 cut the first line of a script at 127."""

_TEXT = """\
#!{python} -IS
# Made by the suite; see tools/rig/base/launch.py
import sys
sys.path.insert(0, {parts!r})
from tools.rig.base import launch
launch.finish(launch.main(sys.argv[1:]))
"""


def publish(folder: Path, link_place: Path, python: Path | None = None) -> Path:
    """Make the launcher in a folder and return its path; what is right stays.

    Parameters
    ----------
    folder
        Where it lies; without blanks in its path, since nvcc's callers split on them.
    link_place
        A private folder for a link to a Python whose own path does not fit into the
        first line of a script.
    python
        What runs it; by default the one below our own environment, since it needs
        nothing but the standard library.

    Raises
    ------
    StepFailed
        When the disk is full or the folder may not be written.
    """
    runs = Path(os.path.realpath(sys.executable)) if python is None else python
    parts = folder / f"{NAME}-parts"
    inside = parts / "tools" / "rig" / "base"
    admit = folder / NAME
    try:
        inside.mkdir(parents=True, exist_ok=True)
        for part in sorted(_BASE.glob("launch*.py")):
            if put(inside / part.name, part.read_bytes(), 0o600):
                _compile(inside / part.name)
        text = _TEXT.format(python=_plain(runs, link_place), parts=os.fspath(parts))
        put(admit, os.fsencode(text), 0o700)
    except OSError as exc:
        raise unwritable(admit, exc) from exc
    return admit


def _plain(python: Path, place: Path) -> Path:
    """Return a path of the interpreter that the first line of a script can hold."""
    text = os.fspath(python)
    if not any(c.isspace() for c in text) and len(text) < _LONGEST_FIRST_LINE - 6:
        return python
    link = place / f"python-{sys.version_info[0]}.{sys.version_info[1]}"
    if not link.is_symlink() or os.readlink(link) != text:
        temp = link.with_name(f".{secrets.token_hex(4)}")
        temp.symlink_to(python)
        os.replace(temp, link)
    return link


def _compile(file: Path) -> None:
    # another Python compiles it for itself when it first runs
    with contextlib.suppress(OSError, py_compile.PyCompileError):
        py_compile.compile(os.fspath(file), doraise=True)
