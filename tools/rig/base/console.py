# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people see: steps with durations, plain without a terminal, folded on GitHub.

People's text goes to stderr, data goes to stdout: with ``--json`` stdout holds one JSON
document and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from tools.rig.base import redact, streams, typed

_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗", "skip": "-", "unknown": "?"}
_PLAIN = {"ok": "+", "warn": "!", "fail": "x", "skip": "-", "unknown": "?"}
_PAINT = {"ok": "32", "warn": "33", "fail": "31", "skip": "2", "unknown": "36"}

_HINT = "hint: "


class Console:
    """Writes messages and steps to one stream.

    What the stream does not take (it is closed or full, or nobody reads it any more) is
    lost, and whoever speaks goes on: words about the work are not the work.

    Parameters
    ----------
    stream
        Where people's text goes; stderr by default.
    env
        Looked at for ``NO_COLOR`` (set to anything: no colour), ``TERM`` (``dumb``: no
        colour) and ``GITHUB_ACTIONS`` (fold steps).
    """

    def __init__(
        self, stream: TextIO | None = None, env: dict[str, str] | None = None
    ) -> None:
        if stream is None and sys.stderr is None:
            streams.occupy()
        self.stream = stream if stream is not None else sys.stderr
        self.env = dict(os.environ) if env is None else env
        self.tty = self.stream.isatty()
        self.color = (
            self.tty and not self.env.get("NO_COLOR") and self.env.get("TERM") != "dumb"
        )
        encoding = (getattr(self.stream, "encoding", None) or "").lower()
        self.unicode = encoding.replace("-", "") in ("utf8", "utf8sig")
        self.github = self.env.get("GITHUB_ACTIONS") == "true"
        # what of the user's own command line belongs on those that hints name
        self.flags: dict[str, str] = {}
        self._live = ""
        self._depth = 0

    def say(self, line: str = "") -> None:
        """Print one line, secrets masked."""
        line = self._typed(line)
        if self.github:
            # the runner obeys lines that begin like this, whoever wrote them
            parts = line.split("\n")
            line = "\n".join(
                p.replace("::", ": :", 1) if p.lstrip().startswith("::") else p
                for p in parts
            )
        self._print(line)

    def hint(self, command: str) -> str:
        """Return a hint as :meth:`say` prints it, for those who read it as data."""
        return self._typed(f"{_HINT}{command}").removeprefix(_HINT)

    def mark(self, status: str, line: str) -> None:
        """Print a line behind a mark.

        Parameters
        ----------
        status
            ``ok``, ``warn``, ``fail``, ``skip`` or ``unknown``.
        """
        sign = (_SIGNS if self.unicode else _PLAIN)[status]
        if self.color:
            sign = f"\033[{_PAINT[status]}m{sign}\033[0m"
        self.say(f"{sign} {line}")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Frame one step: its title, and its duration, also when it failed."""
        start = time.monotonic()
        self._depth += 1
        # the runner knows no groups in groups
        folded = self.github and self._depth == 1
        if folded:
            self._print(f"::group::{' '.join(title.split())}")
        else:
            self.say(f"> {title}")
        try:
            yield
        except BaseException:
            self._end("fail", title, start, folded)
            raise
        self._end("ok", title, start, folded)

    def live(self, line: str) -> None:
        """Show a line that the next one replaces, on a terminal only."""
        if not self.tty:
            return
        line = _cut(redact.text(line.split("\n")[0]), _width(self.stream) - 1)
        rest = max(0, cells(self._live) - cells(line))
        self._write("\r" + line + " " * rest)
        self._live = line

    def clear(self) -> None:
        """Take the live line away."""
        if self._live:
            self._write("\r" + " " * cells(self._live) + "\r")
            self._live = ""

    def _end(self, status: str, title: str, start: float, folded: bool) -> None:
        self._depth -= 1
        if folded:
            # first, so that the result is seen while the group is folded
            self._print("::endgroup::")
        self.mark(status, f"{title} ({duration(time.monotonic() - start)})")

    def _typed(self, line: str) -> str:
        return typed.hint(line, self.env.get("RIG_TASK", ""), self.flags)

    def _print(self, line: str) -> None:
        self.clear()
        self._write(redact.text(line) + "\n")

    def _write(self, text: str) -> None:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        # ValueError: the stream was closed in the meantime
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


def duration(seconds: float) -> str:
    """Return seconds as people say them.

    ``0.4 s``, ``12 s``, ``3 min 20 s``, ``1 h 34 min``.
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(n: float) -> str:
    """Return bytes in binary units: ``221 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines; the last column is not padded."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cells(line[i]) for line in lines) for i in range(len(head))]
    return [
        "  ".join(
            cell + " " * (width - cells(cell))
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def cells(text: str) -> int:
    """Return how many columns of a terminal `text` takes: a Chinese letter two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if _is_wide(c) else 1 for c in text)


def print_json(
    data: Any, stream: TextIO | None = None, *, indent: int | None = 2
) -> None:
    """Print one JSON document to stdout, keys sorted, secrets masked in every string.

    Without an `indent` it is one line.

    Letters that the stream cannot show are escaped; a number that JSON does not have
    (infinity, not a number) becomes null.

    Raises
    ------
    OSError
        When the stream is closed or does not take all of it.
    """
    out = stream if stream is not None else sys.stdout
    if out is None or out.closed:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    plain = _masked(data)
    text = json.dumps(plain, indent=indent, sort_keys=True, ensure_ascii=False)
    try:
        text.encode(getattr(out, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain, indent=indent, sort_keys=True)
    out.write(text + "\n")
    out.flush()


def _masked(data: Any) -> Any:
    if isinstance(data, str):
        return redact.text(data)
    if isinstance(data, dict):
        return {
            str(k): redact.MASK
            if isinstance(v, str) and v and redact.is_secret_name(str(k))
            else _masked(v)
            for k, v in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [_masked(v) for v in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if data is None or isinstance(data, (bool, int, float)):
        return data
    return redact.text(str(data))


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _cut(text: str, width: int) -> str:
    """Return as much of `text` as fits into `width` columns."""
    used = 0
    for at, char in enumerate(text):
        used += cells(char)
        if used > width:
            return text[:at]
    return text


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80
