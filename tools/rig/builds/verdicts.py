# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Judges what was found in a library, and keeps the judgements as plain data. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tools.rig.host.cubins import Content
from tools.rig.host.linkage import Links

GOOD = ("ok", "no device code")
"""Verdicts on a library's GPU code that a good build may have."""


@dataclass(frozen=True)
class LibraryVerdict:
    """One library.

    ``verdict`` is ``ok`` (a cubin for every wanted architecture), ``no device code``
    (and none was expected), ``ptx only``, ``other architecture``, ``no code``,
    ``missing`` or ``unknown`` (it could not be listed). ``links`` is ``ok``,
    ``not checkable here`` (it needs the driver, and all else is there), ``fail`` or
    ``not checked``. ``size`` is in bytes, ``sms`` and ``ptx`` are sm numbers.
    """

    name: str
    path: str
    size: int
    sms: tuple[int, ...]
    cubins: int
    ptx: tuple[int, ...]
    verdict: str
    detail: str = ""
    links: str = "not checked"
    links_detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it that could be seen on this machine."""
        return self.verdict in GOOD and self.links != "fail"


@dataclass(frozen=True)
class ImportVerdict:
    """One module: ``ok``, ``not checkable here`` (it needs the driver) or ``fail``."""

    module: str
    verdict: str
    file: str = ""
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it that could be seen on this machine."""
        return self.verdict != "fail"


@dataclass(frozen=True)
class VerifyReport:
    """Everything that was looked at. ``place`` is the environment or the wheel."""

    place: str
    profile: str
    sms: tuple[int, ...]
    libraries: tuple[LibraryVerdict, ...]
    imports: tuple[ImportVerdict, ...]

    @property
    def ok(self) -> bool:
        """Whether every library and import is good, as far as this machine can tell."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return one line for each thing that is wrong."""
        lines = []
        for lib in self.libraries:
            if lib.verdict not in GOOD:
                lines.append(f"{lib.name}: {lib.detail or lib.verdict}")
            if lib.links == "fail":
                lines.append(f"{lib.name}: {lib.links_detail}")
        bad = (i for i in self.imports if not i.ok)
        return lines + [f"import {i.module}: {i.detail}" for i in bad]

    def unchecked(self) -> list[str]:
        """Return one line for each thing that only a machine with a driver can tell."""
        libs = (lib for lib in self.libraries if lib.links == "not checkable here")
        lines = [f"{lib.name}: {lib.links_detail}" for lib in libs]
        left = (i for i in self.imports if i.verdict == "not checkable here")
        return lines + [f"import {i.module}: {i.detail}" for i in left]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self) | {
            "ok": self.ok,
            "problems": self.problems(),
            "unchecked": self.unchecked(),
        }


def names_of(sms: Iterable[int]) -> str:
    """Return ``sm_70, sm_80``; a dash for none."""
    return ", ".join(f"sm_{sm}" for sm in sms) or "-"


def judge(
    name: str, content: Content, sms: Sequence[int], no_device_code: Iterable[str]
) -> tuple[str, str]:
    """Return the verdict on a library's GPU code, and what is wrong with it.

    Parameters
    ----------
    name
        Path below the top of the import tree.
    content
        What ``cuobjdump`` listed.
    sms
        Architectures that must have cubins.
    no_device_code
        Patterns for libraries that may hold none.
    """
    if content.problem:
        return "unknown", content.problem
    if content.empty:
        if may_be_empty(name, no_device_code):
            return "no device code", ""
        return "no code", "holds no GPU code at all"
    lacking = [sm for sm in sms if sm not in content.sass]
    if not lacking:
        return "ok", ""
    if not content.sass:
        return "ptx only", f"holds only PTX ({names_of(content.ptx)}), no machine code"
    found = names_of(content.sass)
    return "other architecture", f"lacks {names_of(lacking)}, holds {found}"


def judge_links(links: Links) -> tuple[str, str]:
    """Return whether the loader would take a library, and what it would complain of."""
    wrong = [f"{n} is not found" for n in links.missing]
    if links.unresolved:
        first = ", ".join(links.unresolved[:3])
        more = len(links.unresolved) - 3
        wrong.append(f"undefined: {first}" + (f" and {more} more" if more > 0 else ""))
    if links.problem:
        wrong.append(links.problem)
    if wrong:
        return "fail", "; ".join(wrong)
    if links.driver:
        rest = "all else that it needs is there"
        return "not checkable here", f"needs {', '.join(links.driver)}; {rest}"
    return "ok", ""


def matches(name: str, pattern: str) -> bool:
    """Say whether a path fits a pattern, folder by folder: ``*`` stops at a slash."""
    parts, wanted = name.split("/"), pattern.split("/")
    pairs = zip(parts, wanted)
    return len(parts) == len(wanted) and all(fnmatchcase(p, w) for p, w in pairs)


def may_be_empty(name: str, patterns: Iterable[str]) -> bool:
    """Say whether a library is one that holds no GPU code.

    Patterns match the whole path or the file's name. Libraries in a folder ``*.libs``
    were copied into the wheel from the system that built it and are nobody's kernels.
    """
    parts = name.split("/")
    if any(part.endswith(".libs") for part in parts[:-1]):
        return True
    return any(fnmatchcase(name, p) or fnmatchcase(parts[-1], p) for p in patterns)
