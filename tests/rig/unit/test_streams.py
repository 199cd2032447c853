# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is left of standard streams that take nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools.rig.base import streams


class TestSettle:
    """Nothing is left for Python to try again."""

    def test_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a full stream holds back is given up."""
        with Path("/dev/full").open("w") as out:
            out.write("x")
            monkeypatch.setattr(sys, "stdout", out)
            streams.settle()
            leads = os.stat(out.fileno()).st_rdev
        assert leads == os.stat(os.devnull).st_rdev

    def test_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream that is closed, or was never there, is left alone."""
        with Path(os.devnull).open("w") as out:
            pass
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", None)
        streams.settle()
        assert out.closed

    def test_one_that_works(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A stream that takes its text gets it."""
        with (tmp_path / "out").open("w") as out:
            out.write("x")
            monkeypatch.setattr(sys, "stdout", out)
            streams.settle()
            assert (tmp_path / "out").read_text() == "x"


class TestOccupy:
    """Closed descriptors."""

    def test_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """/dev/null goes where nothing is, and no further."""
        given = iter([0, 2, 7])
        closed: list[int] = []
        inherited: list[int] = []
        monkeypatch.setattr(os, "open", lambda *words: next(given))
        monkeypatch.setattr(os, "close", closed.append)
        monkeypatch.setattr(os, "set_inheritable", lambda fd, yes: inherited.append(fd))
        streams.occupy()
        assert (inherited, closed) == ([0, 2], [7])

    def test_all_open(self) -> None:
        """Where nothing is closed nothing changes."""
        before = sys.stdout, sys.stderr, os.fstat(0), os.fstat(2)
        streams.occupy()
        assert (sys.stdout, sys.stderr, os.fstat(0), os.fstat(2)) == before
