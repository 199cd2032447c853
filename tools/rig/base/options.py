# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Every setting of the suite: its names, how its text is read, and what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.rig.base.paths import typed_path

_MOST = 9999
"""More than any number of compiles; make and ninja take no number without end."""

_REMOTE = frozenset({"http", "https", "ftp", "mirror"})
_LOCAL = frozenset({"file", "copy"})


@dataclass(frozen=True)
class Setting:
    """One setting.

    ``name`` is its key in ``rig.toml`` and, with dashes, its flag; ``variable`` its
    name in the environment; ``example`` a good value to show beside a bad one.
    """

    name: str
    variable: str
    parse: Callable[[Any], Any]
    default: Any
    help: str
    example: str = ""

    def toml_example(self) -> str:
        """Return ``example`` as ``rig.toml`` wants it."""
        if self.parse is mirrors:
            prefix, _, mirror = self.example.partition("=")
            return f'{{ "{prefix}" = "{mirror}" }}'
        return self.example if self.example.isdigit() else f'"{self.example}"'


def positive_int(value: Any) -> int:
    """Read a whole number above zero.

    Raises
    ------
    ValueError
        For anything else.
    """
    try:
        number = 0 if isinstance(value, (bool, float)) else int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= _MOST:
        raise ValueError(f"must be a whole number from 1 to {_MOST}")
    return number


def flag_one(value: Any) -> bool:
    """Read a switch that is on for ``1`` and off for ``0`` or nothing.

    Raises
    ------
    ValueError
        For anything else: half-typed overrides must not pass silently.
    """
    text = "1" if value is True else "0" if value is False else str(value).strip()
    if text not in ("", "0", "1"):
        raise ValueError("must be 1 or unset")
    return text == "1"


def text(value: Any) -> str:
    """Read one line of text.

    Raises
    ------
    ValueError
        When it is no text, or empty, or holds a line break.
    """
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise ValueError("must be one line of text")
    if any(c in str(value) for c in "\n\r\0"):
        raise ValueError("must be one line of text, without line breaks")
    return str(value)


def archive(value: Any) -> str:
    """Read the address of a package archive, as a line of apt's sources names it.

    Raises
    ------
    ValueError
        When apt could not read it, or knows no way to fetch from there.
    """
    given = text(value).strip()
    parts = urlsplit(given)
    scheme = parts.scheme.removeprefix("mirror+").removeprefix("tor+")
    if any(map(str.isspace, given)) or scheme not in _REMOTE | _LOCAL:
        raise ValueError("must be an address like http://HOST/PATH or file:/PATH")
    # a port that is no number is found on the way
    if scheme in _REMOTE and (not parts.hostname or parts.port == 0):
        raise ValueError("must name a host, like http://HOST/PATH")
    if scheme in _LOCAL and not parts.path.startswith("/"):
        raise ValueError("must name a folder from the root, like file:/PATH")
    return given


def folder(value: Any) -> Path:
    """Read a path and make it absolute; ``~`` is expanded.

    Raises
    ------
    ValueError
        When it is no text.
    UsageError
        When it is no path (see :func:`tools.rig.base.state.typed_path`).
    """
    return typed_path(text(value))


def torch_index(value: Any) -> str:
    """Read the name of a package index for torch.

    Raises
    ------
    ValueError
        When it is none of those that are known.
    """
    if value not in ("auto", "pytorch", "default"):
        raise ValueError("must be auto, pytorch or default")
    return str(value)


def compile_cache(value: Any) -> str:
    """Read the name of a compile cache.

    Raises
    ------
    ValueError
        When it is none of those that are known.
    """
    if value not in ("auto", "ccache", "sccache", "none"):
        raise ValueError("must be auto, ccache, sccache or none")
    return str(value)


def mirrors(value: Any) -> dict[str, str]:
    """Read pairs of prefix and mirror: a TOML table, or ``PREFIX=MIRROR`` words.

    Raises
    ------
    ValueError
        When a pair has no ``=``.
    """
    if isinstance(value, Mapping):
        return {text(k): text(v) for k, v in value.items()}
    if not isinstance(value, str):
        raise ValueError("must be a table, or words of the form PREFIX=MIRROR")
    pairs = [word.partition("=") for word in value.split()]
    if any(not sep or not key or not val for key, sep, val in pairs):
        raise ValueError("must be words of the form PREFIX=MIRROR")
    return {key: val for key, _, val in pairs}


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "profile",
        "ONECAT_PROFILE",
        text,
        None,
        "profile to build (default: the one that fits the target)",
        "v100-cu128",
    ),
    Setting(
        "source",
        "ONECAT_SOURCE",
        folder,
        None,
        "checkout to build (default: here, else the sample)",
        "/home/me/1Cat-vLLM",
    ),
    Setting(
        "local_root",
        "ONECAT_LOCAL_ROOT",
        folder,
        None,
        "folder on a local disk for everything the suite makes",
        "/data/rig",
    ),
    Setting(
        "jobs",
        "MAX_JOBS",
        positive_int,
        None,
        "compiles at once (default: what memory and cores allow)",
        "4",
    ),
    Setting(
        "force",
        "ONECAT_FORCE",
        flag_one,
        False,
        "1: switch although the environment is in use (never past the lock)",
        "1",
    ),
    Setting(
        "keep_builds",
        "ONECAT_KEEP_BUILDS",
        positive_int,
        3,
        "builds to keep (never removed: the active, the previous, those in use)",
        "5",
    ),
    Setting(
        "python",
        "ONECAT_PYTHON",
        text,
        None,
        "Python version or interpreter for the environment",
        "3.12",
    ),
    Setting(
        "torch_index",
        "ONECAT_TORCH_INDEX",
        torch_index,
        "auto",
        "auto, pytorch (its own index) or default (pip's and uv's index)",
        "default",
    ),
    Setting(
        "git_mirrors",
        "ONECAT_GIT_MIRRORS",
        mirrors,
        {},
        "PREFIX=MIRROR words: git clones PREFIX from MIRROR",
        "https://github.com/=https://mirror.example/",
    ),
    Setting(
        "apt_mirror",
        "ONECAT_APT_MIRROR",
        archive,
        None,
        "distribution mirror for the toolkit (default: this machine's own)",
        "http://mirror.example/debian",
    ),
    Setting(
        "compile_cache",
        "ONECAT_COMPILE_CACHE",
        compile_cache,
        "auto",
        "auto (ccache where installed, else sccache), ccache, sccache or none",
        "sccache",
    ),
    Setting(
        "offline",
        "ONECAT_OFFLINE",
        flag_one,
        False,
        "1: never fetch anything; say what is missing instead",
        "1",
    ),
)
