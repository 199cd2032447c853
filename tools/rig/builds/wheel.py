# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads built wheels: their requirements, and which of their files a build made."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from tools.rig.base.errors import StepFailed, quoted, unwritable

BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What Python says of an archive that is damaged, encrypted or packed by others."""


def only_wheel(folder: Path) -> Path:
    """Return the one wheel in a folder.

    Raises
    ------
    StepFailed
        When there is none, or more than one.
    """
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise StepFailed(
            f"expected one wheel in {folder}, found {names}",
            hint=f"ls -la {quoted(folder)}",
        )
    return found[0]


def requirements(wheel: Path, python: str | None = None) -> list[str]:
    """Return what the wheel needs at run time on this machine, without extras.

    The wheel's own metadata is asked and not the checkout's requirement files, since a
    target's setup.py may rewrite those for the CUDA version at hand.

    Parameters
    ----------
    wheel
        The built wheel.
    python
        Version of the Python that it is for, like ``3.12.3``; ours when None.

    Raises
    ------
    StepFailed
        When the file is no wheel, or its metadata is no good.
    """
    here = {"extra": ""}
    if python:
        short = ".".join(python.split(".")[:2])
        here |= {"python_version": short, "python_full_version": python}
    needed = []
    for line in _metadata(wheel).get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as exc:
            raise StepFailed(
                f"{wheel.name} has a requirement {line!r}: {exc}",
                hint=f"python3 -m zipfile -l {quoted(wheel)}",
            ) from exc
        marker = requirement.marker
        if marker is None or marker.evaluate(here):
            requirement.marker = None
            needed.append(str(requirement))
    return needed


def version(wheel: Path) -> str:
    """Return the version in the wheel's metadata."""
    return str(_metadata(wheel)["Version"])


def made_files(wheel: Path, tracked: Iterable[str]) -> list[str]:
    """Return the members of a wheel that git does not track: what the build made."""
    known = set(tracked)
    with _open(wheel) as archive:
        return [
            name
            for name in archive.namelist()
            if not name.endswith("/")
            and not _top(name).endswith((".dist-info", ".data"))
            and name not in known
        ]


def same(one: Path, other: Path) -> bool:
    """Say whether two wheels hold the same files; their dates do not count."""
    try:
        with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
            return _content(first) == _content(second)
    except (OSError, zipfile.BadZipFile):
        return False


def holds(wheel: Path, member: str, file: Path) -> bool:
    """Say whether a file on the disk is a wheel's member, by length and checksum."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
        if file.stat().st_size != info.file_size:
            return False
        found = 0
        with file.open("rb") as content:
            while chunk := content.read(1 << 20):
                found = zlib.crc32(chunk, found)
        return found == info.CRC
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def _content(archive: zipfile.ZipFile) -> set[tuple[str, int, int]]:
    return {(i.filename, i.file_size, i.CRC) for i in archive.infolist()}


def hollow(wheel: Path, into: Path) -> Path:
    """Write a copy of a wheel that holds nothing but its metadata.

    A target's own "use a finished wheel" switch then finds nothing to unpack: it would
    write over libraries in place, under the feet of whoever has them mapped.
    """
    made = into / wheel.name
    with _open(wheel) as old:
        try:
            into.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(made, "w") as new:
                for info in old.infolist():
                    if _top(info.filename).endswith(".dist-info"):
                        new.writestr(info, old.read(info))
        except OSError as exc:
            raise unwritable(made, exc) from exc
    return made


def _metadata(wheel: Path) -> Message:
    with _open(wheel) as archive:
        names = [
            name
            for name in archive.namelist()
            # a package may carry other packages' metadata deeper down
            if name == f"{_top(name)}/METADATA" and _top(name).endswith(".dist-info")
        ]
        if len(names) != 1:
            raise StepFailed(
                f"{wheel.name} has no metadata: it is no wheel",
                hint=f"python3 -m zipfile -l {quoted(wheel)}",
            )
        return Parser().parsestr(archive.read(names[0]).decode("utf-8", "replace"))


def _top(name: str) -> str:
    return name.partition("/")[0]


def _open(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as exc:
        raise StepFailed(
            f"cannot read {wheel}: {exc}",
            usual="The file was cut short, or is no wheel.",
            hint=f"ls -l {quoted(wheel)}",
        ) from exc
