# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether the loader would find everything that a library asks for, without loading it.

On a machine without a driver a library that needs ``libcuda.so.1`` cannot be loaded, so
everything else about it is checked here: its libraries, their versions, its symbols.
The order of search is that of ld.so(8). A library that another package loads first is
found by its name alone, which is how torch's extensions find torch: hence `folders`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base import run
from tools.rig.host import elf

DRIVER = {
    "libcuda.so.1": re.compile(r"cu[A-Z]\w*"),
    "libnvidia-ml.so.1": re.compile(r"nvml[A-Z]\w*"),
}
"""Libraries that only a driver installs, and how their symbols are named."""

_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE_LINE = re.compile(r"^\t(\S+) \(([^)]*)\) => (/.*)$")


@dataclass(frozen=True)
class Process:
    """The process that a library would be loaded into.

    ``exe`` is the interpreter, ``preloaded`` what it has already loaded for all to see,
    ``folders`` where earlier imports found their libraries, ``cache`` the loader's own
    list by name, ``search`` the value of LD_LIBRARY_PATH.
    """

    exe: Path
    preloaded: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    cache: Mapping[str, tuple[Path, ...]] | None = None
    search: str = ""


@dataclass(frozen=True)
class Links:
    """What would happen at load.

    ``missing`` are libraries that cannot be found, ``driver`` those of them that only a
    driver brings, ``unresolved`` symbols and versions that nobody defines, ``assumed``
    how many symbols the absent driver is trusted with. ``problem`` names a library that
    could not be read.
    """

    missing: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    assumed: int = 0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that shows without a driver."""
        return not (self.missing or self.unresolved or self.problem)


def loader_cache(env: Mapping[str, str]) -> dict[str, tuple[Path, ...]]:
    """Return the loader's cache: every library name with its files, best first.

    Empty without ``ldconfig``; the usual folders are then all that is searched.
    """
    path = os.pathsep.join([env.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    result = run.run(["ldconfig", "-p"], env={**env, "PATH": path}, timeout=20)
    found: dict[str, tuple[Path, ...]] = {}
    for match in filter(None, map(_CACHE_LINE.match, result.out.splitlines())):
        found[match[1]] = (*found.get(match[1], ()), Path(match[3]))
    return found


def check(library: Path, process: Process) -> Links:
    """Follow a library's needs to the end and look every symbol up.

    Only the library's own symbols are asked for: what its dependencies lack among
    themselves is for those who installed them.
    """
    try:
        image = _read(library)
        exe = _read(process.exe)
    except elf.ElfProblem as exc:
        return Links(problem=str(exc))
    if image.machine != exe.machine:
        return Links(problem="made for another processor than this Python")
    walk = _Walk(process, image.machine)
    walk.follow(process.exe.resolve(), exe)
    for early in process.preloaded:
        walk.add(early)
    # what the interpreter itself lacks is no fault of the library
    walk.missing.clear()
    walk.follow(library, image)
    driver = tuple(n for n in walk.missing if n in DRIVER)
    lost = [s for s in image.undefined if not any(s in e.defined for e in walk.images)]
    shapes = [DRIVER[name] for name in driver]
    unresolved = [s for s in lost if not any(p.fullmatch(s) for p in shapes)]
    return Links(
        missing=tuple(n for n in walk.missing if n not in DRIVER),
        driver=driver,
        unresolved=tuple(sorted(unresolved) + walk.lacking_versions(image)),
        assumed=len(lost) - len(unresolved),
        problem=walk.problem,
    )


class _Walk:
    """Collects the closure of everything that is loaded, breadth first."""

    def __init__(self, process: Process, machine: int) -> None:
        self._process = process
        self._machine = machine
        self._by_name: dict[str, elf.Elf] = {}
        self.images: list[elf.Elf] = []
        self.missing: dict[str, None] = {}
        self.problem = ""

    def add(self, path: Path) -> None:
        try:
            self.follow(path, _read(path))
        except elf.ElfProblem as exc:
            self.problem = self.problem or f"{path.name}: {exc}"

    def follow(self, path: Path, image: elf.Elf) -> None:
        self.images.append(image)
        self._by_name[image.soname or path.name] = image
        # each entry: a name, who asks for it, and the RPATHs of those above the asker
        above: tuple[str, ...] = ()
        queue = [(name, path, image, above) for name in image.needed]
        for name, asker, asking, inherited in queue:
            if name in self._by_name:
                continue
            found = self._find(name, asker, asking, inherited)
            if found is None:
                self.missing[name] = None
                continue
            where, loaded = found
            self.missing.pop(name, None)
            self._by_name[name] = loaded
            self.images.append(loaded)
            above = (*self._rpath(asking, asker), *inherited)
            queue += [(more, where, loaded, above) for more in loaded.needed]

    def lacking_versions(self, image: elf.Elf) -> list[str]:
        lacking = []
        for name, version in image.wants:
            giver = self._by_name.get(name)
            if giver is not None and giver.gives and version not in giver.gives:
                lacking.append(f"version {version} of {name}")
        return sorted(lacking)

    def _find(
        self, name: str, asker: Path, asking: elf.Elf, inherited: Iterable[str]
    ) -> tuple[Path, elf.Elf] | None:
        for path in self._candidates(name, asker, asking, inherited):
            if not path.is_file():
                continue
            try:
                image = _read(path)
            except elf.ElfProblem as exc:
                self.problem = self.problem or f"{path}: {exc}"
                continue
            if image.machine == self._machine:
                return path, image
        return None

    def _candidates(
        self, name: str, asker: Path, asking: elf.Elf, inherited: Iterable[str]
    ) -> Iterable[Path]:
        if "/" in name:
            yield Path(name)
            return
        if not asking.runpath:
            for folder in (*self._rpath(asking, asker), *inherited):
                yield Path(folder, name)
        for folder in filter(None, self._process.search.split(":")):
            yield Path(folder, name)
        for folder in self._expand(asking.runpath, asker):
            yield Path(folder, name)
        yield from (self._process.cache or {}).get(name, ())
        for place in (*map(Path, _USUAL), *self._process.folders):
            yield place / name

    def _rpath(self, image: elf.Elf, path: Path) -> list[str]:
        # a RUNPATH beside it takes an RPATH out of force
        return [] if image.runpath else self._expand(image.rpath, path)

    @staticmethod
    def _expand(folders: Iterable[str], asker: Path) -> list[str]:
        origin = os.fspath(asker.parent)
        return [
            f.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for f in folders
        ]


def _read(path: Path) -> elf.Elf:
    real = path.resolve()
    try:
        stat = real.stat()
    except OSError as exc:
        raise elf.ElfProblem(f"cannot be read: {exc.strerror}") from exc
    return _read_once(real, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=512)
def _read_once(path: Path, mtime: int, size: int) -> elf.Elf:
    # nine libraries of one build share most of their dependencies
    return elf.read(path)
