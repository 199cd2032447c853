# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Paths that people type, in the settings or as an option."""

from __future__ import annotations

import os
from pathlib import Path

from tools.rig.base.errors import UsageError


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path; any name is welcome except one with a line break.

    Raises
    ------
    UsageError
        On a newline, carriage return or zero byte, which no build tool below us can
        quote.
    """
    text = os.fspath(path)
    if "\n" in text or "\r" in text or "\0" in text:
        raise UsageError(
            f"the path {text!r} holds a line break",
            hint="rename the folder and try again",
        )
    return Path(text)


def typed_path(word: str | os.PathLike[str]) -> Path:
    """Return the whole path that somebody typed; ``~`` is expanded.

    Raises
    ------
    UsageError
        When it is no path (see :func:`checked_path`), or no home is meant by ``~``.
    """
    path = checked_path(word)
    try:
        return path.expanduser().absolute()
    except RuntimeError as exc:
        raise UsageError(
            f"{path}: no home folder of that name is known",
            hint=f"./{path} where the folder is really called so",
        ) from exc


def given_path(word: str) -> Path | None:
    """Return the whole path of an option; None when it was not given.

    Raises
    ------
    UsageError
        See :func:`typed_path`.
    """
    return typed_path(word) if word else None
