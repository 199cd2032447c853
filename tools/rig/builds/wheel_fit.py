# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a wheel is for this Python on this system, as its file name says."""

from __future__ import annotations

import json
import os
import shlex
import stat
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re
from packaging import tags
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_wheel_filename,
)

from tools.rig.base import redact, run
from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.base.paths import typed_path

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_ASK = (
    "import json, sys, sysconfig; print(json.dumps([sys.implementation.name, "
    "*sys.version_info[:2], bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)
_ASK_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class WheelName:
    """What a wheel's file name says."""

    project: str
    version: str
    tags: frozenset[tags.Tag]


@dataclass(frozen=True)
class Interpreter:
    """The Python that would import it; ``threads`` marks a build without the GIL."""

    name: str
    version: tuple[int, int]
    threads: bool = False

    def __str__(self) -> str:
        free = " without the GIL" if self.threads else ""
        return f"{self.name} {self.version[0]}.{self.version[1]}{free}"


def file_of(typed: str) -> Path:
    """Return the wheel that is meant by what was typed.

    Raises
    ------
    UsageError
        When that is no file, or the file is no wheel at all.
    """
    if not typed:
        raise UsageError("which wheel?", hint="invoke install-wheel FILE")
    if _ADDRESS.match(typed):
        raise UsageError(
            f"{redact.text(typed)} is an address, and not a file",
            usual="A wheel is looked at as a whole before anything is installed.",
            hint="curl -LO THE-ADDRESS, then invoke install-wheel FILE",
        )
    wheel = typed_path(typed)
    quoted = shlex.quote(os.fspath(wheel))
    try:
        found = wheel.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UsageError(
                f"{wheel} is a folder; one file is needed", hint=f"ls {quoted}"
            )
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{wheel} is no file", hint=f"ls -l {quoted}")
        with wheel.open("rb") as content:
            whole = zipfile.is_zipfile(content)
    except (FileNotFoundError, NotADirectoryError) as exc:
        folder = shlex.quote(os.fspath(wheel.parent))
        raise UsageError(f"there is no file {wheel}", hint=f"ls -l {folder}") from exc
    except OSError as exc:
        raise UsageError(
            f"{wheel} cannot be read: {exc.strerror}", hint=f"ls -l {quoted}"
        ) from exc
    name_of(wheel)
    if not whole:
        what = "is empty" if not found.st_size else "is no wheel: it is no zip file"
        raise UsageError(
            f"{wheel} {what}",
            usual="The download broke off, or a page was saved in its place.",
            hint=f"ls -l {quoted}, and download it again",
        )
    return wheel


def name_of(wheel: Path) -> WheelName:
    """Read the name of a wheel.

    Raises
    ------
    UsageError
        When it is not named like a wheel.
    """
    try:
        project, version, _, found = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as exc:
        raise UsageError(
            f"{wheel.name} is not named like a wheel: {exc}",
            usual="A browser or a script renamed it; the name carries what it is for.",
            hint="download it again under its own name: project-version-python-abi-"
            "platform.whl",
        ) from exc
    return WheelName(canonicalize_name(project), str(version), found)


def interpreter_of(python: Path, env: Mapping[str, str]) -> Interpreter:
    """Ask an interpreter what it is.

    Raises
    ------
    StepFailed
        When it does not answer within a minute.
    """
    result = run.run(
        [python, "-I", "-c", _ASK], env=env, cwd="/", timeout=_ASK_TIMEOUT_S
    )
    try:
        name, major, minor, threads = json.loads(result.out)
    except ValueError as exc:
        raise StepFailed(
            f"{python} does not say which Python it is",
            details=(result.out + result.err).splitlines()[-5:],
            hint="invoke venv-local",
        ) from exc
    return Interpreter(name, (major, minor), threads)


def check(
    name: WheelName, python: Interpreter, platforms: Iterable[str] | None = None
) -> None:
    """Refuse a wheel that this Python on this system cannot load.

    Parameters
    ----------
    platforms
        Platform tags, best first; those of this machine when None.

    Raises
    ------
    CannotError
        With the part of its name that does not fit.
    """
    places = list(tags.platform_tags() if platforms is None else platforms)
    check_system(name, places)
    if name.tags & set(_tags(python, places)):
        return
    raise CannotError(
        f"the wheel is for another Python ({_said(name)}) than {python}",
        usual="Compiled modules fit one Python release, unless they are abi3.",
        hint=f"export ONECAT_PYTHON={_wanted(name)} and run invoke venv-local",
    )


def check_system(name: WheelName, platforms: Iterable[str] | None = None) -> None:
    """Refuse a wheel that no Python on this system can load; as for :func:`check`.

    Raises
    ------
    CannotError
        With what its name says it is for.
    """
    places = list(tags.platform_tags() if platforms is None else platforms)
    if any(tag.platform in (*places, "any") for tag in name.tags):
        return
    glibc = next((p for p in places if p.startswith("manylinux_")), "none")
    raise CannotError(
        f"the wheel is for another system ({_said(name)})",
        usual=f"Newest platform that this machine serves: {glibc}.",
        hint="invoke build-sm70",
    )


def _said(name: WheelName) -> str:
    return ", ".join(sorted(str(tag) for tag in name.tags))


def _tags(python: Interpreter, platforms: list[str]) -> Iterable[tags.Tag]:
    digits = "".join(map(str, python.version))
    if python.name == "cpython":
        abi = f"cp{digits}{'t' if python.threads else ''}"
        yield from tags.cpython_tags(python.version, [abi], platforms)
    yield from tags.compatible_tags(python.version, f"cp{digits}", platforms)


def _wanted(name: WheelName) -> str:
    """Return the Python release in a wheel's tags, as ``3.12``."""
    for tag in sorted(name.tags, key=str):
        digits = tag.interpreter.removeprefix("cp")
        if digits.isdigit() and len(digits) > 1:
            return f"{digits[0]}.{digits[1:]}"
    return "<the wheel's>"
