# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Numbers as people type them: what is wrong with one is told as it is."""

from __future__ import annotations

import math

from tools.rig.base.errors import UsageError
from tools.rig.serve.foreign import shown


def whole(flag: str, word: str, least: int, most: int, *, hint: str = "") -> int:
    """Return the whole number that was typed for an option.

    Parameters
    ----------
    flag
        The option without its dashes.
    least, most
        The smallest and the largest number that it may be.

    Raises
    ------
    UsageError
        When it is no whole number, or out of these bounds.
    """
    found = _read(word)
    if not found >= least or (found <= most and found != int(found)):
        what = "a whole number" + (f" above {least - 1}" if least else "")
        raise UsageError(f"--{flag} {shown(word)} is not {what}", hint=hint)
    return int(_not_above(most, found, flag, word, hint))


def number(flag: str, word: str, most: float, *, hint: str = "") -> float:
    """Return the number from 0 on that was typed for an option.

    Parameters
    ----------
    flag
        The option without its dashes.
    most
        The largest number that it may be.

    Raises
    ------
    UsageError
        When it is none, or too large.
    """
    found = _read(word)
    if not found >= 0:
        raise UsageError(f"--{flag} {shown(word)} is not a number from 0 on", hint=hint)
    return _not_above(most, found, flag, word, hint)


def _read(word: str) -> float:
    """Return a number; one that compares with none for anything else."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _not_above(most: float, found: float, flag: str, word: str, hint: str) -> float:
    if found > most:
        what = f"--{flag} {shown(word)} is too large: {most:,.10g} is the most"
        raise UsageError(what, hint=hint)
    return found
