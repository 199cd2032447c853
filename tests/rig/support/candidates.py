# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Places for an environment, good ones and such as will not do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.rig.builds.candidates import GIB, Candidate
from tools.rig.host.look import Disk
from tools.rig.host.pythons import Python
from tools.rig.host.storage import UNLIMITED, Mount, Rates

ME, STRANGER = 1000, 4711
FAST = Rates(9000, 90000, 9000, 9000, 0.05, 0.2)
SLOW = Rates(4.6, 16, 8.3, 16, 216.0, 1.2)
HOME = Mount(Path("/home"), "ext4", "/dev/sda", "rw,relatime", "8:1")
NAS = Mount(Path("/nas"), "nfs4", "srv:/export", "rw", "0:50")
PY312 = Python(Path("/usr/bin/python3.12"), "3.12.3", "PATH")


def disk(path: str = "/home/me/state", **more: Any) -> Disk:
    """Return a good place; `more` spoils it."""
    good: dict[str, Any] = {
        "mount": HOME,
        "writable": True,
        "free_bytes": 100 * GIB,
        "free_inodes": UNLIMITED,
        "rates": FAST,
        "links": True,
    }
    return Disk(Path(path), Path(path), **{**good, **more})


def candidate(root: str = "/home/me/state", chosen: bool = False, **more: Any) -> Any:
    """Return a candidate on such a disk."""
    venv = more.pop("venv", "absent")
    version = more.pop("version", "")
    found = disk(root, **more)
    return Candidate(Path(root), "test", found, chosen, venv, version)


def mount(**more: Any) -> Mount:
    """Return the home's mount with something changed."""
    return replace(HOME, **more)


PY311 = Python(Path("/usr/bin/python3.11"), "3.11.2", "PATH")
