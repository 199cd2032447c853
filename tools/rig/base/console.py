# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What people see: steps with durations, plain lines without a terminal, folded groups
on GitHub.

People's text goes to stderr, data goes to stdout: with ``--json`` stdout holds one JSON
document and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from tools.rig.base import redact


class Console:
    """Writes messages and steps to one stream.

    Parameters
    ----------
    stream
        Where people's text goes; stderr by default.
    env
        Looked at for ``NO_COLOR`` (any value: no colour) and ``GITHUB_ACTIONS`` (fold
        steps).
    """

    def __init__(
        self, stream: TextIO | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.env = dict(os.environ) if env is None else env
        self.tty = self.stream.isatty()
        self.color = (
            self.tty and "NO_COLOR" not in self.env and self.env.get("TERM") != "dumb"
        )
        self.unicode = (getattr(self.stream, "encoding", None) or "").lower().replace(
            "-", ""
        ) in ("utf8", "utf8sig")
        self.github = self.env.get("GITHUB_ACTIONS") == "true"
        self._live = ""

    def say(self, line: str = "") -> None:
        """Print one line, secrets masked."""
        self.clear()
        print(redact.text(line), file=self.stream, flush=True)

    def mark(self, status: str, line: str) -> None:
        """Print a line behind a mark: ``ok``, ``warn``, ``fail``, ``skip`` or
        ``unknown``.
        """
        signs = {"ok": "✓", "warn": "!", "fail": "✗", "skip": "-", "unknown": "?"}
        plain = {"ok": "+", "warn": "!", "fail": "x", "skip": "-", "unknown": "?"}
        paint = {"ok": "32", "warn": "33", "fail": "31", "skip": "2", "unknown": "36"}
        sign = (signs if self.unicode else plain)[status]
        self.say(
            f"\033[{paint[status]}m{sign}\033[0m {line}"
            if self.color
            else f"{sign} {line}"
        )

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Frame one step: its title, and its duration when it is over, also when it
        failed.
        """
        start = time.monotonic()
        self.say(f"::group::{title}" if self.github else f"> {title}")
        try:
            yield
        except BaseException:
            self._end("fail", title, start)
            raise
        self._end("ok", title, start)

    def live(self, line: str) -> None:
        """Show a line that the next one replaces; without a terminal nothing is
        printed.
        """
        if not self.tty:
            return
        width = _width(self.stream)
        line = redact.text(line)[: width - 1]
        self.stream.write("\r" + line + " " * max(0, len(self._live) - len(line)))
        self.stream.flush()
        self._live = line

    def clear(self) -> None:
        """Take the live line away."""
        if self._live:
            self.stream.write("\r" + " " * len(self._live) + "\r")
            self._live = ""

    def _end(self, status: str, title: str, start: float) -> None:
        self.mark(status, f"{title} ({duration(time.monotonic() - start)})")
        if self.github:
            self.say("::endgroup::")


def duration(seconds: float) -> str:
    """Return seconds as people say them: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``1 h 34
    min``.
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(n: float) -> str:
    """Return bytes in binary units: ``221 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024 or unit == "GiB":
            return (
                f"{n:.0f} {unit}" if unit in ("B", "KiB", "MiB") else f"{n:.1f} {unit}"
            )
        n /= 1024
    raise AssertionError


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines; the last column is not padded."""
    widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    out = []
    for row in [head, *rows]:
        cells = [str(c).ljust(w) for c, w in zip(row, widths, strict=True)]
        out.append("  ".join(cells).rstrip())
    return out


def print_json(data: Any, stream: TextIO | None = None) -> None:
    """Print one JSON document to stdout, keys sorted, secrets masked in every string."""
    out = stream if stream is not None else sys.stdout
    json.dump(
        _masked(data), out, indent=2, sort_keys=True, default=str, ensure_ascii=False
    )
    out.write("\n")
    out.flush()


def _masked(data: Any) -> Any:
    if isinstance(data, str):
        return redact.text(data)
    if isinstance(data, dict):
        return {str(k): _masked(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_masked(v) for v in data]
    return data


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80
