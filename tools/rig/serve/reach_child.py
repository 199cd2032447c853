# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Says what a user may not do with files, with that user's own rights.

Bits of modes alone would not tell: there are lists of access, and disks of a network
that have rules of their own. Runs as a plain script, isolated, as root, and imports
nothing of ours: ``python -I reach_child.py``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

_ASKED = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}


def closed(path: str, modes: str) -> str | None:
    """Return what is closed to this process: the path, or a folder on the way to it.

    Parameters
    ----------
    path
        Links in it are followed.
    modes
        Letters of what is wanted: ``r``, ``w``, ``x``.
    """
    wanted = 0
    for mode in modes:
        wanted |= _ASKED[mode]
    if os.access(path, wanted):
        return None
    real = os.path.realpath(path)
    way = [real]
    while way[0] != os.path.dirname(way[0]):
        way.insert(0, os.path.dirname(way[0]))
    # a name that nothing can be told of below may be a link that was not followed
    return next((one for one in way[:-1] if not os.access(one, os.X_OK)), path)


def all_closed(asked: Iterable[Sequence[str]]) -> list[str | None]:
    """Return :func:`closed` for each path and its letters."""
    return [closed(path, modes) for path, modes in asked]


def main() -> int:
    """Become the user on standard input, and print what is closed to it."""
    order = json.load(sys.stdin)
    os.initgroups(order["name"], order["gid"])
    os.setresgid(*[order["gid"]] * 3)
    os.setresuid(*[order["uid"]] * 3)
    print(json.dumps(all_closed(order["asked"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
