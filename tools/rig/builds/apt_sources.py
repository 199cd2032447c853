# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reads the machine's own apt configuration: which mirror it uses, and whose keys.

Both forms are read: ``*.list`` lines and ``*.sources`` stanzas (sources.list(5)). A
mirror's address is free text, so the one that serves a whole distribution is told from
third parties by what it is signed with, what it offers and how its path ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

ETC = Path("/etc/apt")

_LINE = re.compile(r"^deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)")
_OFF = frozenset({"no", "false", "without", "off", "disable", "0"})
_UPDATES = ("-security", "-updates", "-backports", "-proposed", "/updates")


@dataclass(frozen=True)
class Source:
    """One source of binary packages; ``keyrings`` is empty for apt's default keys."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyrings: tuple[Path, ...] = ()


def read(etc: Path = ETC) -> list[Source]:
    """Return every enabled source in the order of files, one for each address."""
    files = [etc / "sources.list"]
    parts = etc / "sources.list.d"
    if parts.is_dir():
        # apt reads no other suffix: .disabled, .save and .dpkg-old are out of force
        files += sorted(p for p in parts.iterdir() if p.suffix in (".list", ".sources"))
    found: list[Source] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found += _stanzas(text) if file.suffix == ".sources" else _lines(text)
    return [
        Source(uri, source.suites, source.components, source.keyrings)
        for source in found
        for uri in _expanded(source.uri)
    ]


def mirrors(sources: Iterable[Source], distribution: str) -> list[Source]:
    """Return the sources that serve the whole of `distribution`, the surest first.

    Parameters
    ----------
    sources
        From :func:`read`.
    distribution
        ``debian`` or ``ubuntu``.
    """
    path = re.compile(rf"/{distribution}(?:-ports)?/*$")
    ranked = []
    for source in sources:
        plain = [s for s in source.suites if not s.endswith(_UPDATES)]
        if not plain or "main" not in source.components:
            continue
        theirs = any(f"{distribution}-archive" in k.name for k in source.keyrings)
        named = bool(path.search(source.uri)) and "security" not in source.uri
        if theirs or named:
            # a third party's path may end alike, but it brings its own keys
            rank = 0 if theirs and named else 1 if not source.keyrings else 3 - theirs
            ranked.append((rank, source))
    return [source for _, source in sorted(ranked, key=lambda pair: pair[0])]


def suite(sources: Iterable[Source], distribution: str, codename: str) -> str:
    """Return the suite that this machine's own packages come from.

    A distribution's derivative has a codename of its own, so the sources decide; the
    codename is what remains where they say nothing.
    """
    for source in mirrors(sources, distribution):
        if codename in source.suites:
            return codename
    for source in mirrors(sources, distribution):
        return next(s for s in source.suites if not s.endswith(_UPDATES))
    return codename


def _lines(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match:
            options, uri, suite_, components = match.groups()
            keys = ""
            for word in (options or "").split():
                name, _, value = word.partition("=")
                keys = value if name == "signed-by" else keys
            yield Source(uri, (suite_,), tuple(components.split()), _keyrings(keys))


def _stanzas(text: str) -> Iterator[Source]:
    for fields in _fields(text):
        kinds = fields.get("types", "").split()
        if "deb" not in kinds or fields.get("enabled", "yes").strip().lower() in _OFF:
            continue
        for uri in fields.get("uris", "").split():
            yield Source(
                uri,
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                _keyrings(fields.get("signed-by", "")),
            )


def _fields(text: str) -> Iterator[Mapping[str, str]]:
    """Read deb822 stanzas: names in lower case, folded lines joined by blanks."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t" and last:
            fields[last] += " " + line.strip()
        else:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            fields[last] = value.strip()


def _keyrings(text: str) -> tuple[Path, ...]:
    """Return keyring files; fingerprints and keys written out are not among them."""
    if "BEGIN PGP" in text:
        return ()
    words = text.replace(",", " ").split()
    return tuple(Path(word) for word in words if word.startswith("/"))


def _expanded(uri: str) -> list[str]:
    """Return the addresses in a local mirror list, or the address itself."""
    scheme, _, rest = uri.partition(":")
    if scheme != "mirror+file":
        return [uri]
    try:
        text = Path("/" + rest.lstrip("/")).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    return [words[0] for words in lines if words]
