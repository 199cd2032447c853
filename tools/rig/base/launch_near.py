# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Turns the paths that a compile was told back into those that people know.

For the compile cache a source is ``../../near/src/csrc/x.cu`` (see
:mod:`tools.rig.base.near`); who reads an error wants to open the file.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def known(text: bytes, env: Mapping[str, str], cwd: str) -> bytes:
    """Return what a compiler said, with the paths of the checkout.

    Parameters
    ----------
    text
        Its standard error.
    env
        ``RIG_NEAR`` says which link stands for which path, as the near script reads it.
    cwd
        Where it ran.
    """
    _, *paths = env.get("RIG_NEAR", "").split("\n")
    if not paths or b"/near/" not in text:
        return text
    here = os.path.realpath(cwd)
    seen: set[str] = set()
    for path, link in zip(paths[::2], paths[1::2]):
        if link not in seen:
            # of a path and what it leads to, the first is as it was typed
            seen.add(link)
            near = os.fsencode(os.path.relpath(link, here))
            text = text.replace(near + b"/", os.fsencode(path) + b"/")
    return text
