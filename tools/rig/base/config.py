# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Settings, and where each came from.

Order: command line > environment (``ONECAT_*``) > the user's ``rig.toml`` > profile >
default. ``rig.toml`` lies at the top of the checkout or where ``ONECAT_CONFIG`` points;
it is optional and never shipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.base.state import checked_path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Setting:
    """One setting: how it is called everywhere, how its text is read, and what it is
    for.
    """

    name: str
    variable: str
    parse: Callable[[Any], Any]
    default: Any
    help: str


def positive_int(value: Any) -> int:
    """Read a whole number above zero.

    Raises
    ------
    ValueError
        For anything else.
    """
    number = int(str(value))
    if number < 1 or isinstance(value, (bool, float)):
        raise ValueError("must be a whole number above 0")
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
    """Read a line of text without line breaks.

    Raises
    ------
    ValueError
        When it is no text or holds a line break.
    """
    if not isinstance(value, (str, Path)) or "\n" in str(value):
        raise ValueError("must be one line of text")
    return str(value)


def folder(value: Any) -> Path:
    """Read an absolute path; ``~`` is expanded."""
    return checked_path(text(value)).expanduser().absolute()


def mirrors(value: Any) -> dict[str, str]:
    """Read ``prefix = mirror`` pairs: a TOML table, or ``prefix=mirror`` words in the
    environment.

    Raises
    ------
    ValueError
        When a pair has no ``=``.
    """
    if isinstance(value, Mapping):
        return {text(k): text(v) for k, v in value.items()}
    pairs = [word.partition("=") for word in str(value).split()]
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
    ),
    Setting(
        "source",
        "ONECAT_SOURCE",
        folder,
        None,
        "checkout to build (default: here, else the sample)",
    ),
    Setting(
        "local_root",
        "ONECAT_LOCAL_ROOT",
        folder,
        None,
        "folder on a local disk for everything the suite makes",
    ),
    Setting(
        "jobs",
        "MAX_JOBS",
        positive_int,
        None,
        "compiles at once (default: what memory and cores allow)",
    ),
    Setting(
        "force",
        "ONECAT_FORCE",
        flag_one,
        False,
        "1: build although the environment is in use (never past the lock)",
    ),
    Setting(
        "python",
        "ONECAT_PYTHON",
        text,
        None,
        "Python version or interpreter for the environment",
    ),
    Setting(
        "torch_index",
        "ONECAT_TORCH_INDEX",
        text,
        "auto",
        "auto, pytorch (its own index) or default (pip's and uv's index)",
    ),
    Setting(
        "git_mirrors",
        "ONECAT_GIT_MIRRORS",
        mirrors,
        {},
        "PREFIX=MIRROR words: git clones PREFIX from MIRROR",
    ),
    Setting(
        "apt_mirror",
        "ONECAT_APT_MIRROR",
        text,
        None,
        "distribution mirror for the toolkit (default: this machine's own)",
    ),
    Setting(
        "offline",
        "ONECAT_OFFLINE",
        flag_one,
        False,
        "1: never fetch anything; say what is missing instead",
    ),
)


@dataclass(frozen=True)
class Settings:
    """Resolved settings. ``values[name]`` is the value, ``origin[name]`` says where it
    came from.
    """

    values: Mapping[str, Any]
    origin: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def resolve(
    cli: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Merge all sources of settings, the strongest first.

    Parameters
    ----------
    cli
        Values from the command line; None values count as not given.
    env
        The environment; our own when None.
    file
        A ``rig.toml``; one that does not exist is an empty one.

    Raises
    ------
    UsageError
        For a value that cannot be read, an unknown key in the file, or an unknown
        ``ONECAT_*`` variable.
    """
    env = os.environ if env is None else env
    cli = cli or {}
    from_file = _read_file(file)
    _refuse_unknown(env, from_file, file)
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for setting in SETTINGS:
        for given, where in (
            (cli.get(setting.name), "command line"),
            (env.get(setting.variable) or None, f"environment ({setting.variable})"),
            (from_file.get(setting.name), str(file)),
        ):
            if given is None:
                continue
            try:
                values[setting.name] = setting.parse(given)
            except (ValueError, TypeError) as exc:
                raise UsageError(
                    f"{setting.name} = {given!r} from the {where}: {exc}"
                    if "line" in where
                    else f"{setting.name} = {given!r} from {where}: {exc}",
                    hint=f"{setting.help}",
                ) from exc
            origin[setting.name] = where
            break
        else:
            values[setting.name], origin[setting.name] = setting.default, "default"
    return Settings(values, origin)


_OTHER_VARIABLES = frozenset(
    {"ONECAT_CONFIG", "ONECAT_VLLM_PIN_TORCH_CU128", "ONECAT_TEST_CACHE"}
)


def _refuse_unknown(
    env: Mapping[str, str], from_file: Mapping[str, Any], file: Path | None
) -> None:
    known = {s.variable for s in SETTINGS} | _OTHER_VARIABLES
    names = {s.name for s in SETTINGS}
    for key in from_file:
        if key not in names:
            raise UsageError(
                f"unknown setting {key!r} in {file}",
                hint=f"known: {', '.join(sorted(names))}",
            )
    # the host reads ONECAT_* variables of its own, so an unknown one is only refused
    # when it is nearly one of ours
    for key in env:
        if key.startswith("ONECAT_") and key not in known and key.upper() in known:
            raise UsageError(
                f"unknown variable {key}", hint=f"export {key.upper()}=..."
            )


def _read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        with file.open("rb") as fh:
            return tomllib.load(fh)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as exc:
        raise UsageError(
            f"cannot read {file}: {exc}", hint=f"correct or move {file}"
        ) from exc
