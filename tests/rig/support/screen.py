# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A terminal small enough to be read: what stands on it after all that was written."""

from __future__ import annotations

import io
from collections.abc import Sequence

import regex as re

from tools.rig.base.console import cells

_PIECE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")
_CUT = re.compile(r"\x1b(?:\[[?\d;]*)?\Z")


class Terminal:
    """Follows text, line ends, and the escape codes of lines that are drawn again.

    A window that changes its width breaks its lines anew, as most do today. Any code
    that is not known fails the test.
    """

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns = columns
        self.rows = rows
        self.cursor_shown = True
        self.codes: set[str] = set()
        self._lines: list[list[str]] = [[]]
        self._broken: list[bool] = [False]
        self._row = 0
        self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        """Take what a program writes."""
        # a code may come in two parts
        text, self._rest = self._rest + text, ""
        if cut := _CUT.search(text):
            text, self._rest = text[: cut.start()], text[cut.start() :]
        at = 0
        for piece in _PIECE.finditer(text):
            assert piece.start() == at, f"not known: {text[at : at + 20]!r}"
            at = piece.end()
            if piece[2]:
                self._code(piece[1], piece[2])
            elif piece[3]:
                self._end(piece[3])
            else:
                self._put(piece[4])
        assert at == len(text), f"not known: {text[at : at + 20]!r}"

    def resize(self, columns: int, rows: int) -> None:
        """Break what stands here anew; the cursor stays behind the same letter."""
        whole: list[list[str]] = [[]]
        cursor = (0, 0)
        for row, line in enumerate(self._lines):
            if row == self._row:
                cursor = (len(whole) - 1, len(whole[-1]) + self._column)
            whole[-1] += line
            if not self._broken[row]:
                whole.append([])
        whole.pop()
        self.columns, self.rows = columns, rows
        self._lines, self._broken = [], []
        for number, line in enumerate(whole):
            first = len(self._lines)
            for start in range(0, max(1, len(line)), columns):
                self._lines.append(line[start : start + columns])
                self._broken.append(start + columns < len(line))
            if number == cursor[0]:
                last = len(self._lines) - 1
                self._row = min(first + cursor[1] // columns, last)
                self._column = cursor[1] - (self._row - first) * columns

    def text(self) -> list[str]:
        """Return all lines, also those that were scrolled away."""
        found = ["".join(line).rstrip() for line in self._lines]
        while found and not found[-1]:
            found.pop()
        return found

    def _code(self, numbers: str, letter: str) -> None:
        self.codes.add(letter)
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "A":
            top = max(0, len(self._lines) - self.rows)
            self._row = max(top, self._row - count)
        elif letter == "K":
            assert numbers == "2"
            self._lines[self._row] = []
            self._broken[self._row] = False
        elif letter in "hl":
            assert numbers == "?25"
            self.cursor_shown = letter == "h"
        else:
            assert letter == "m", f"not known: {numbers}{letter}"

    def _end(self, char: str) -> None:
        self._column = 0
        if char == "\n":
            self._down()

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])
            self._broken.append(False)

    def _put(self, char: str) -> None:
        wide = cells(char)
        if self._column + wide > self.columns:
            self._broken[self._row] = True
            self._end("\n")
        line = self._lines[self._row]
        line.extend(" " * (self._column - len(line)))
        line[self._column : self._column + wide] = [char, *[""] * (wide - 1)]
        self._column += wide


class Tty(io.StringIO):
    """A stream that is a terminal, and shows what stands on it."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base has a plain attribute
        """What was chosen."""
        return self._encoding

    def isatty(self) -> bool:
        """Say yes."""
        return True

    def screen(self) -> Sequence[str]:
        """Return the lines that stand on it."""
        terminal = Terminal()
        terminal.feed(self.getvalue())
        return terminal.text()
