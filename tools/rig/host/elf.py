# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads what the loader reads in a shared library, and whether the file is whole.

A reader of our own and no call of binutils: ``cuobjdump`` and ``readelf`` both take a
file that a copy cut short for one that merely holds less, and a host that installs a
prebuilt wheel need not have binutils at all. Layouts: System V gABI, chapters 4 and 5,
and the symbol versioning section of the Linux Standard Base.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_SYM = struct.Struct("<IBBHQQ")
_DYN = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")

_SHT_DYNAMIC, _SHT_NOBITS, _SHT_DYNSYM = 6, 8, 11
_SHT_VERDEF, _SHT_VERNEED = 0x6FFFFFFD, 0x6FFFFFFE
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29
_LOCAL, _GLOBAL = 0, 1
_DEFAULT, _PROTECTED = 0, 3


class ElfProblem(Exception):
    """The file cannot be read as a whole 64-bit ELF file; the text says why."""


@dataclass(frozen=True)
class Elf:
    """What the loader sees.

    ``undefined`` are the strong symbols that others must define, ``defined`` those that
    others may use. ``wants`` are pairs of a library and a symbol version that it must
    have, ``gives`` the versions defined here. ``machine`` is the ELF number of the
    processor (62 is x86-64, 183 is AArch64).
    """

    machine: int
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    undefined: frozenset[str]
    defined: frozenset[str]
    wants: tuple[tuple[str, str], ...]
    gives: frozenset[str]
    sections: frozenset[str]


def read(path: Path) -> Elf:
    """Read a shared library or a program.

    Raises
    ------
    ElfProblem
        When it cannot be opened, is no 64-bit little-endian ELF file, was cut short, or
        contradicts itself.
    """
    try:
        with path.open("rb") as fh:
            if os.fstat(fh.fileno()).st_size < _EHDR.size:
                raise ElfProblem("too short to be an ELF file")
            with mmap.mmap(fh.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data).elf()
    except OSError as exc:
        raise ElfProblem(f"cannot be read: {exc.strerror}") from exc
    except (struct.error, IndexError, ValueError) as exc:
        raise ElfProblem(f"contradicts itself: {exc}") from exc


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    offset: int
    size: int
    link: int


class _Reader:
    """Walks one mapped file by its section headers."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        head = _EHDR.unpack_from(data, 0)
        ident, self.machine = head[0], head[2]
        if ident[:4] != b"\x7fELF":
            raise ElfProblem("not an ELF file")
        if ident[4] != 2 or ident[5] != 1:
            raise ElfProblem("not a 64-bit little-endian ELF file")
        table, count, names = head[6], head[12], head[13]
        if not table or not count:
            raise ElfProblem("has no section headers")
        if table + count * _SHDR.size > len(data):
            raise ElfProblem(
                f"cut short: {len(data)} bytes, its headers end at "
                f"{table + count * _SHDR.size}"
            )
        self._sections = [
            _Section(raw[0], raw[1], raw[4], raw[5], raw[6])
            for raw in _SHDR.iter_unpack(data[table : table + count * _SHDR.size])
        ]
        self._names = self._sections[names]
        for section in self._sections:
            end = section.offset + section.size
            if section.kind != _SHT_NOBITS and end > len(data):
                raise ElfProblem(
                    f"cut short: {len(data)} bytes, a section ends at {end}"
                )

    def elf(self) -> Elf:
        dynamic = self._dynamic()
        undefined, defined = self._symbols()
        return Elf(
            machine=self.machine,
            soname=next(iter(dynamic.get(_DT_SONAME, [])), ""),
            needed=tuple(dynamic.get(_DT_NEEDED, [])),
            rpath=_folders(dynamic.get(_DT_RPATH, [])),
            runpath=_folders(dynamic.get(_DT_RUNPATH, [])),
            undefined=frozenset(undefined),
            defined=frozenset(defined),
            wants=tuple(self._wants()),
            gives=frozenset(self._gives()),
            sections=frozenset(self._text(self._names, s.name) for s in self._sections),
        )

    def _text(self, strings: _Section, at: int) -> str:
        start = strings.offset + at
        end = self._data.find(b"\0", start, strings.offset + strings.size)
        if at >= strings.size or end < 0:
            raise ValueError(f"a name lies outside its table, at {at}")
        return self._data[start:end].decode("utf-8", "replace")

    def _of_kind(self, kind: int) -> Iterator[tuple[_Section, _Section]]:
        for section in self._sections:
            if section.kind == kind:
                yield section, self._sections[section.link]

    def _dynamic(self) -> dict[int, list[str]]:
        tags = (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)
        found: dict[int, list[str]] = {}
        for section, strings in self._of_kind(_SHT_DYNAMIC):
            raw = self._data[section.offset : section.offset + section.size]
            for tag, value in _DYN.iter_unpack(raw):
                if tag == 0:
                    break
                if tag in tags:
                    found.setdefault(tag, []).append(self._text(strings, value))
        return found

    def _symbols(self) -> tuple[set[str], set[str]]:
        undefined: set[str] = set()
        defined: set[str] = set()
        for section, strings in self._of_kind(_SHT_DYNSYM):
            raw = self._data[section.offset : section.offset + section.size]
            for name, info, other, index, _, _ in _SYM.iter_unpack(raw):
                bind = info >> 4
                if bind == _LOCAL:
                    continue
                if index:
                    if other & 3 in (_DEFAULT, _PROTECTED):
                        defined.add(self._text(strings, name))
                elif bind == _GLOBAL:
                    undefined.add(self._text(strings, name))
        return undefined, defined

    def _wants(self) -> Iterator[tuple[str, str]]:
        for section, strings in self._of_kind(_SHT_VERNEED):
            at = section.offset
            while True:
                _, _, file, first, step = _VERNEED.unpack_from(self._data, at)
                library = self._text(strings, file)
                aux = at + first
                while True:
                    _, flags, _, name, more = _VERNAUX.unpack_from(self._data, aux)
                    # flag 2 marks a version that only weak symbols want
                    if not flags & 2:
                        yield library, self._text(strings, name)
                    if not more:
                        break
                    aux += more
                if not step:
                    break
                at += step

    def _gives(self) -> Iterator[str]:
        for section, strings in self._of_kind(_SHT_VERDEF):
            at = section.offset
            while True:
                _, _, _, _, _, first, step = _VERDEF.unpack_from(self._data, at)
                (name,) = struct.unpack_from("<I", self._data, at + first)
                yield self._text(strings, name)
                if not step:
                    break
                at += step


def _folders(values: list[str]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value.split(":") if part)
