# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where an environment's imports would come from, found without importing anything.

A package is installed when an import finds it: in a folder on ``sys.path``, or through
the finder that an editable install leaves. Files that lie in the checkout but are
reached by neither are not installed, whatever the exit status of the install was.
"""

from __future__ import annotations

import ast
import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base import run
from tools.rig.base.errors import StepFailed, quoted

_ASK = (
    "import json, sys, sysconfig; paths = sysconfig.get_paths(); "
    "print(json.dumps([sys.path, [paths['purelib'], paths['platlib']]]))"
)
_ASK_TIMEOUT_S = 60.0
_FINDERS = "__editable___*_finder.py"
# names that start with a dot are files on their way to their place
_SHARED_OBJECT = re.compile(r"[^.].*\.so(?:\.\d+)*")


@dataclass(frozen=True)
class Site:
    """An environment's search path.

    ``path`` are the folders on ``sys.path`` of a Python that was started isolated (no
    current folder, no PYTHONPATH), ``sites`` those of them that hold installed
    distributions, ``mapped`` what editable finders add: a name and its folder or file.
    """

    path: tuple[Path, ...]
    sites: tuple[Path, ...]
    mapped: Mapping[str, Path]

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every folder that stands for the top of the import tree."""
        roots = [*self.path, *(place.parent for place in self.mapped.values())]
        return tuple(dict.fromkeys(roots))


@dataclass(frozen=True)
class Found:
    """A shared library. ``name`` is its path below the top of the import tree."""

    name: str
    path: Path


def site_of(python: Path, env: Mapping[str, str]) -> Site:
    """Ask an interpreter for its search path.

    Raises
    ------
    StepFailed
        When it does not answer within a minute.
    """
    result = run.run(
        [python, "-I", "-c", _ASK], env=env, cwd="/", timeout=_ASK_TIMEOUT_S
    )
    try:
        path, sites = json.loads(result.out.splitlines()[-1])
    except (IndexError, ValueError) as exc:
        raise StepFailed(
            f"{python} does not say where it looks for packages",
            usual="The environment is broken, or its base interpreter was removed.",
            details=(result.out + result.err).splitlines()[-5:],
            hint=f"{quoted(python)} -I -c 'import sys; print(sys.path)'",
        ) from exc
    folders = tuple(dict.fromkeys(Path(p) for p in sites))
    found = tuple(dict.fromkeys(Path(p) for p in path if Path(p).is_dir()))
    mapped: dict[str, Path] = {}
    for folder in folders:
        for finder in sorted(folder.glob(_FINDERS)):
            mapped.update(_mapping(finder))
    return Site(found, folders, mapped)


def package(site: Site, module: str) -> Path | None:
    """Return the folder or file that ``import module`` would take, or None."""
    top, _, rest = module.partition(".")
    for root in site.path:
        place = _below(root, top)
        if place is not None:
            return _inside(place, rest)
    if top in site.mapped:
        place = _plain(site.mapped[top])
        return _inside(place, rest) if place is not None else None
    return None


def libraries(
    site: Site, modules: Iterable[str], patterns: Iterable[str]
) -> list[Found]:
    """Return every shared library that belongs to some modules.

    That is: what lies in their folders, what the distributions that brought them have
    recorded, and what `patterns` match below the top of the import tree.
    """
    found: dict[Path, Found] = {}

    def add(name: str, path: Path) -> None:
        found.setdefault(Path(os.path.realpath(path)), Found(name, path))

    tops = sorted({m.partition(".")[0] for m in modules})
    for top in tops:
        place = package(site, top)
        if place is not None:
            for path in shared_objects(place):
                add(path.relative_to(place.parent).as_posix(), path)
    for folder in site.sites:
        for name in _recorded(folder, tops):
            add(name, folder / name)
    for root in site.roots:
        for pattern in patterns:
            for path in filter(_is_library, sorted(root.glob(pattern))):
                add(path.relative_to(root).as_posix(), path)
    return sorted(found.values(), key=lambda f: f.name)


def shared_objects(place: Path) -> list[Path]:
    """Return the shared libraries in a folder and below it, sorted."""
    if place.is_file():
        return [place] if is_shared_object(place.name) else []
    found = []
    for folder, _, files in os.walk(place):
        found += [Path(folder, name) for name in files if is_shared_object(name)]
    return sorted(found)


def is_shared_object(name: str) -> bool:
    """Say whether a file of this name is one that the loader would be given."""
    return bool(_SHARED_OBJECT.fullmatch(name.rpartition("/")[2]))


def _is_library(path: Path) -> bool:
    return is_shared_object(path.name)


def _below(root: Path, top: str) -> Path | None:
    return _plain(root / top)


def _plain(place: Path) -> Path | None:
    """Return what an import finds under a path without suffix, if anything."""
    if (place / "__init__.py").is_file() or place.is_file():
        return place
    for path in sorted(place.parent.glob(f"{place.name}.*")):
        if path.suffix == ".py" or is_shared_object(path.name):
            return path
    return place if place.is_dir() and any(place.glob("*.so")) else None


def _inside(place: Path, rest: str) -> Path | None:
    for part in filter(None, rest.split(".")):
        below = _plain(place / part)
        if below is None:
            return None
        place = below
    return place


def _mapping(finder: Path) -> dict[str, Path]:
    """Read the table of an editable finder, which is a literal in its source."""
    try:
        tree = ast.parse(finder.read_text(encoding="utf-8"))
        for node in tree.body:
            if _assigned(node) == "MAPPING":
                assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
                found = ast.literal_eval(node.value)
                return {name: Path(place) for name, place in found.items()}
    except (OSError, SyntaxError, ValueError):
        # no finder that Python could use; what it should find is then reported missing
        return {}
    return {}


def _assigned(node: ast.stmt) -> str:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return next((t.id for t in targets if isinstance(t, ast.Name)), "")


def _recorded(site: Path, tops: Iterable[str]) -> Iterator[str]:
    """Yield the libraries that the distributions of some packages have recorded."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        try:
            with record.open(encoding="utf-8", newline="") as fh:
                names = [row[0] for row in csv.reader(fh) if row]
        except (OSError, ValueError, csv.Error):
            # pip and uv cannot read it either; what lies in the folders is still found
            continue
        heads = {name.partition("/")[0].partition(".")[0] for name in names}
        if heads.intersection(tops):
            yield from (n for n in names if is_shared_object(n))
