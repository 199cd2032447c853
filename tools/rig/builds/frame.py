# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a running build looks like: lines that fit any terminal, and one plain line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tools.rig.base import redact
from tools.rig.base.console import cells, duration, size

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of a line, each with its style; the styles are rich's."""

MOST = 12
"""Running compiles that are listed; more would push away what was said before."""

_GIB = 1 << 30
_BAR = 30
_ROOM = 4  # rows of a terminal that are left to what was said before


@dataclass(frozen=True)
class Compile:
    """One running compile; ``bytes`` is None where nobody measures."""

    name: str
    seconds: float
    bytes: int | None = None


@dataclass(frozen=True)
class View:
    """What is known of a running build; None where it is not."""

    done: int
    total: int
    took_s: float
    left_s: float | None = None
    last: str = ""
    running: tuple[Compile, ...] | None = None
    waiting: int = 0
    used: int | None = None
    budget: int | None = None
    hits: int = 0
    compiled: int = 0
    held: str = ""
    """Who has the room that all of the build waits for."""


def about(seconds: float) -> str:
    """Return a time that nobody knows to the second: ``40 s``, ``1 h 25 min``."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(round(minutes / 5) * 5, 60)
    return f"{hours} h {rest} min"


def lines(view: View, width: int, height: int, encoding: str = "utf-8") -> list[Line]:
    """Return the lines of a terminal, none wider than `width` allows.

    Parameters
    ----------
    width, height
        Columns and rows of the terminal.
    encoding
        What the terminal can show; what it cannot is escaped.
    """
    width = max(1, width - 1)  # in the last column some terminals begin a new line
    pretty = encoding.lower().replace("-", "") in ("utf8", "utf8sig")
    found = [_head(view, width, pretty)]
    room = min(MOST, height - _ROOM)
    if room < 1:
        return found
    facts = _facts(view, width)
    if facts:
        found.append([(facts, "dim")])
    if view.held:
        held = f"  {view.held}".encode(encoding, "backslashreplace").decode(encoding)
        found.append([(_cut(held, width), "yellow")])
    running = sorted(view.running or (), key=lambda c: -c.seconds)
    rest = len(running) - room
    for one in running[: room - 1 if rest > 0 else room]:
        found.append(_compile(one, width, encoding))
    if rest > 0:
        found.append([(_cut(f"  and {rest + 1} more", width), "dim")])
    if view.running is None and view.last:
        name = tail(view.last, width - 2, encoding)
        found.append([(_cut(f"  {name}", width), "dim")])
    return found


def plain(view: View) -> str:
    """Return one line for logs."""
    words = [duration(view.took_s)]
    if view.left_s is not None and view.done < view.total:
        words.append(f"about {about(view.left_s)} left")
    line = (
        f"  [{view.done}/{view.total}] " if view.total else "  nothing compiled yet, "
    )
    if view.running is None:
        return f"{line}{_name(view.last).rpartition('/')[2]} ({', '.join(words)})"
    parts = [", ".join(words), *_long(view)]
    longest = sorted(view.running, key=lambda c: -c.seconds)[:2]
    if longest:
        named = [
            f"{_name(c.name).rpartition('/')[2]} {duration(c.seconds)}" for c in longest
        ]
        parts.append("longest " + ", ".join(named))
    if view.held:
        parts.append(view.held)
    return line + "; ".join(parts)


def tail(name: str, width: int, encoding: str = "utf-8") -> str:
    """Return the end of a path, whole folders where they fit: that is what tells."""
    name = _name(name).encode(encoding, "backslashreplace").decode(encoding)
    if cells(name) <= width:
        return name
    mark = "…" if _shows(encoding, "…") else "..."
    parts = name.split("/")
    while len(parts) > 1:
        parts.pop(0)
        shown = "/".join([mark, *parts])
        if cells(shown) <= width:
            return shown
    while name and cells(mark + name) > width:
        name = name[1:]
    return _cut(mark + name, width)


def _head(view: View, width: int, pretty: bool) -> Line:
    if not view.total:
        words = f"  nothing compiled yet ({duration(view.took_s)})"
        return [(_cut(words, width), "dim")]
    count = f"{view.done}/{view.total}"
    left = ""
    if view.left_s is not None and view.done < view.total:
        left = f"about {about(view.left_s)} left"
    ratio = min(1.0, view.done / view.total) if view.total else 0.0
    words = f"{count}  {duration(view.took_s)}" + (f", {left}" if left else "")
    if 2 + 10 + 2 + cells(words) > width:
        words = f"{count}  {left}" if left else words
    room = min(_BAR, width - 4 - cells(words))
    if room < 6:
        return [(_cut(f"  {words}", width), "bold")]
    full = round(ratio * room)
    on, off = ("━", "─") if pretty else ("#", "-")
    return [
        ("  ", ""),
        (on * full, "green"),
        (off * (room - full), "dim"),
        ("  " + words, "bold"),
    ]


def _facts(view: View, width: int) -> str:
    """Return what fits of the facts in long words, else in short ones."""
    for parts in (_long(view), _short(view)):
        text = "  " + "  ".join(parts)
        if parts and cells(text) <= width:
            return text
    parts = _short(view)
    while len(parts) > 1 and cells("  " + "  ".join(parts)) > width:
        parts.pop()
    return _cut("  " + "  ".join(parts), width) if parts else ""


def _long(view: View) -> list[str]:
    found = []
    if view.used is not None and view.budget:
        found.append(f"memory {view.used / _GIB:.1f} of {view.budget / _GIB:.1f} GiB")
    if view.running is not None:
        found.append(f"{len(view.running)} running")
        if view.waiting:
            found.append(f"{view.waiting} waiting")
    if view.hits:
        found.append(f"{view.hits} of {view.compiled} from the cache")
    return found


def _short(view: View) -> list[str]:
    found = []
    if view.used is not None and view.budget:
        found.append(f"{view.used / _GIB:.1f}/{view.budget / _GIB:.1f} GiB")
    if view.running is not None:
        found.append(f"{len(view.running)} run")
        if view.waiting:
            found.append(f"{view.waiting} wait")
    if view.hits:
        found.append(f"{view.hits} cached")
    return found


def _compile(one: Compile, width: int, encoding: str) -> Line:
    minutes, seconds = divmod(int(one.seconds), 60)
    held = "" if one.bytes is None else f"{size(one.bytes):>10}"
    start = f"{minutes:>4}:{seconds:02}{held}  "
    if width < len(start) + 8:
        name = tail(one.name, width - 2, encoding)
        return [(_cut(f"  {name}", width), "")]
    return [(start, "dim"), (tail(one.name, width - len(start), encoding), "")]


def _name(name: str) -> str:
    """Return an output as people call it, without what a terminal would obey."""
    name = redact.text(name).removeprefix("CMakeFiles/").removesuffix(".o")
    name = name.replace("/CMakeFiles/", "/")
    return "".join(c if c.isprintable() else "?" for c in name)


def holders(running: Iterable[Mapping[str, Any]], places: object) -> str:
    """Return who holds the room that a build waits for, of which nothing runs.

    Parameters
    ----------
    running
        The entries of the admission's status that are of other builds.
    places
        How many may run at once; anything else than a number where that is not told.
    """
    counts: dict[tuple[str, object], int] = {}
    for one in running:
        who = str(one.get("build") or ""), one.get("pid") or 0
        counts[who] = counts.get(who, 0) + 1
    of = f" of {places}" if isinstance(places, int) and places else ""
    said = []
    for (build, pid), count in counts.items():
        name = f"build {_name(build)}" if build else "another build"
        name += f" (PID {pid})" if isinstance(pid, int) and pid else ""
        noun = "place" if count == 1 and not of else "places"
        said.append(f"{name} holds {count}{of} {noun}")
    return f"waiting: {', '.join(said)}" if said else ""


def _shows(encoding: str, char: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeError:
        return False
    return True


def _cut(text: str, width: int) -> str:
    while text and cells(text) > width:
        text = text[:-1]
    return text


def shown(drawn: Sequence[Line]) -> list[str]:
    """Return lines without their styles."""
    return ["".join(text for text, _ in line) for line in drawn]
