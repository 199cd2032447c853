# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes small ELF files, so that tests need neither a compiler nor a system library."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def write(
    path: Path,
    *,
    soname: str = "",
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str = "",
    undefined: Sequence[str] = (),
    weak: Sequence[str] = (),
    defined: Sequence[str] = (),
    hidden: Sequence[str] = (),
    local: Sequence[str] = (),
    wants: Mapping[str, Sequence[str]] | None = None,
    gives: Sequence[str] = (),
    sections: Sequence[str] = (),
    machine: int = 62,
) -> Path:
    """Write a shared library with the given dynamic section, symbols and sections."""
    names, strings = _Strings(), _Strings()
    dynamic = [(1, strings.add(n)) for n in needed]
    dynamic += [
        (tag, strings.add(text))
        for tag, text in ((14, soname), (15, rpath), (29, runpath))
        if text
    ]
    # bind << 4 | type function; visibility; section index
    kinds = (
        (undefined, 0x12, 0, 0),
        (weak, 0x22, 0, 0),
        (defined, 0x12, 0, 1),
        (hidden, 0x12, 2, 1),
        (local, 0x02, 0, 1),
    )
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for group, info, other, index in kinds:
        for name in group:
            symbols += struct.pack(
                "<IBBHQQ", strings.add(name), info, other, index, 0, 0
            )
    need = _version_needs(wants or {}, strings)
    give = _version_definitions(gives, strings)
    parts = [
        (".dynstr", 3, 0, strings.data),
        (".dynsym", 11, 1, symbols),
        (
            ".dynamic",
            6,
            1,
            b"".join(struct.pack("<qQ", *d) for d in [*dynamic, (0, 0)]),
        ),
        *([(".gnu.version_r", 0x6FFFFFFE, 1, need)] if need else []),
        *([(".gnu.version_d", 0x6FFFFFFD, 1, give)] if give else []),
        *((name, 1, 0, b"code") for name in sections),
        (".bss", 8, 0, b""),
    ]
    headers = [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    body = b""
    for name, kind, link, data in parts:
        size = 1 << 30 if kind == 8 else len(data)
        entry = (names.add(name), kind, 0, 0, 64 + len(body), size, link, 0, 1, 0)
        headers.append(struct.pack("<IIQQQQIIQQ", *entry))
        body += data
    at = names.add(".shstrtab")
    entry = (at, 3, 0, 0, 64 + len(body), len(names.data), 0, 0, 1, 0)
    headers.append(struct.pack("<IIQQQQIIQQ", *entry))
    body += names.data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(headers)
    table = 64 + len(body)
    head = (ident, 3, machine, 1, 0, 0, table, 0, 64, 0, 0, 64, count, count - 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<16sHHIQQQIHHHHHH", *head) + body + b"".join(headers))
    return path


def _version_needs(wants: Mapping[str, Sequence[str]], strings: _Strings) -> bytes:
    out = b""
    for number, (library, versions) in enumerate(wants.items(), start=1):
        step = 0 if number == len(wants) else 16 + 16 * len(versions)
        file = strings.add(library)
        out += struct.pack("<HHIII", 1, len(versions), file, 16, step)
        for index, version in enumerate(versions, start=1):
            # a leading question mark: only weak symbols want it
            flags = 2 if version.startswith("?") else 0
            name = strings.add(version.lstrip("?"))
            more = 0 if index == len(versions) else 16
            out += struct.pack("<IHHII", 0, flags, index, name, more)
    return out


def _version_definitions(gives: Sequence[str], strings: _Strings) -> bytes:
    out = b""
    for number, version in enumerate(gives, start=1):
        step = 0 if number == len(gives) else 28
        out += struct.pack("<HHHHIII", 1, 0, number, 1, 0, 20, step)
        out += struct.pack("<II", strings.add(version), 0)
    return out
