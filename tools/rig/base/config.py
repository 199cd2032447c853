# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Settings, and where each came from.

Order: command line > environment (``ONECAT_*``) > the user's ``rig.toml`` > profile >
default. ``rig.toml`` lies at the top of the checkout or where ``ONECAT_CONFIG`` points;
it is optional and never shipped.
"""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.base.options import SETTINGS as SETTINGS
from tools.rig.base.options import Setting as Setting
from tools.rig.base.options import archive as archive
from tools.rig.base.options import flag_one as flag_one
from tools.rig.base.options import folder as folder
from tools.rig.base.options import mirrors as mirrors
from tools.rig.base.options import positive_int as positive_int
from tools.rig.base.options import text as text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ALSO_READ = frozenset(
    {
        "ONECAT_CONFIG",
        "ONECAT_TEST_CACHE",
        "ONECAT_TORCH_CU128_URLS",
        "ONECAT_VLLM_PIN_TORCH_CU128",
    }
)
"""Variables that are no settings: ours, and those that the host repository reads."""

_ALIKE = 0.8
"""How alike two names must be for the one to be a slip for the other (0 to 1)."""


@dataclass(frozen=True)
class Settings:
    """Resolved settings: each value, and in ``origin`` where it came from."""

    values: Mapping[str, Any]
    origin: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        # a copy is looked at before it has its values
        if name.startswith("__") or name in ("values", "origin"):
            raise AttributeError(name)
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
        Values from the command line. None and False count as not given, since a switch
        that nobody typed is False.
    env
        The environment; our own when None. A variable that is set to nothing counts as
        not given.
    file
        A ``rig.toml``; one that does not exist is an empty one, unless
        ``ONECAT_CONFIG`` names it.

    Raises
    ------
    UsageError
        For a value that cannot be read, an unknown key in the file, or an ``ONECAT_*``
        variable that is nearly one of ours.
    """
    env = os.environ if env is None else env
    cli = cli or {}
    named = env.get("ONECAT_CONFIG")
    if named and file == Path(named) and not file.exists():
        raise UsageError(
            f"ONECAT_CONFIG names {file}, which does not exist",
            hint="unset ONECAT_CONFIG",
        )
    from_file = _read_file(file)
    _refuse_unknown(env, from_file, file)
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for setting in SETTINGS:
        typed = cli.get(setting.name)
        for given, where in (
            (None if typed is False else typed, "command line"),
            (env.get(setting.variable) or None, f"environment ({setting.variable})"),
            (from_file.get(setting.name), str(file)),
        ):
            if given is not None:
                values[setting.name] = _parsed(setting, given, where)
                origin[setting.name] = where
                break
        else:
            values[setting.name], origin[setting.name] = setting.default, "default"
    return Settings(values, origin)


def _parsed(setting: Setting, given: Any, where: str) -> Any:
    try:
        found = setting.parse(given)
    except (ValueError, TypeError, UsageError) as exc:
        if where == "command line":
            place = "the command line"
            hint = f"--{setting.name.replace('_', '-')} {setting.example}".rstrip()
            if setting.parse is flag_one:
                hint = f"--{setting.name}"
        elif where.startswith("environment"):
            place = f"the {where}"
            hint = f"export {setting.variable}={shlex.quote(setting.example)}"
        else:
            place = where
            hint = f"write {setting.name} = {setting.toml_example()} in {where}"
        raise UsageError(
            f"{setting.name} = {given!r} from {place}: {exc}",
            usual=f"{setting.name}: {setting.help}.",
            hint=hint,
        ) from exc
    if setting.parse is folder and where != "command line":
        _need_absolute(setting, given, where)
    return found


def _need_absolute(setting: Setting, given: Any, where: str) -> None:
    """Refuse a folder that would be another one wherever the user stands.

    Raises
    ------
    UsageError
        With the whole path to write instead.
    """
    text = os.path.expanduser(str(given))
    if os.path.isabs(text):
        return
    by_variable = where.startswith("environment")
    start = os.curdir if by_variable else os.path.dirname(where)
    whole = os.path.abspath(os.path.join(start, text))
    raise UsageError(
        f"{setting.name} = {str(given)!r} from {'the ' * by_variable}{where}: must be "
        "an absolute path",
        usual="Else it would be another folder wherever you stand.",
        hint=f"export {setting.variable}={shlex.quote(whole)}"
        if by_variable
        else f'write {setting.name} = "{whole}" in {where}',
    )


def _refuse_unknown(
    env: Mapping[str, str], from_file: Mapping[str, Any], file: Path | None
) -> None:
    names = [s.name for s in SETTINGS]
    for key in from_file:
        if key not in names:
            near = _nearest(key.lower().replace("-", "_"), names)
            raise UsageError(
                f"unknown setting {key!r} in {file}",
                usual=f"Known: {', '.join(sorted(names))}.",
                hint=f"write {near} = ..." if near else f"correct {file}",
            )
    known = {*(s.variable for s in SETTINGS), *_ALSO_READ}
    by_bare = {"CONFIG": "ONECAT_CONFIG"}
    for setting in SETTINGS:
        # ONECAT_JOBS and ONECAT_MAX_JOBS are likely guesses for MAX_JOBS
        for name in (setting.name, setting.variable.removeprefix("ONECAT_")):
            by_bare[_bare(f"ONECAT_{name}")] = setting.variable
    for key in env:
        bare = _bare(key)
        if not bare or key in known:
            continue
        # the host repository has ONECAT_* variables of its own, and may get more: only
        # what is nearly one of ours is a slip
        near = _nearest(bare, by_bare)
        if near is not None:
            raise UsageError(
                f"unknown variable {key}",
                usual=f"It would not be read; {by_bare[near]} would.",
                hint=f"unset {key}; export {by_bare[near]}={shlex.quote(env[key])}",
            )


def _bare(variable: str) -> str:
    """Return the part behind ``ONECAT_``, however that is written, or nothing."""
    squeezed = variable.upper().replace("_", "").replace("-", "")
    return squeezed[6:] if squeezed.startswith("ONECAT") else ""


def _nearest(name: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=_ALIKE)
    return found[0] if found else None


def _read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        with file.open("rb") as fh:
            found: dict[str, Any] = tomllib.load(fh)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"cannot read {file}: {exc}", hint=f"correct or move {file}"
        ) from exc
    return found
