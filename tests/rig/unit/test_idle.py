# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading a long program's output, and noticing that it is stuck."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.rig.base import idle


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return both ends of a pipe; the tests may close the second."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)


class TestLines:
    """Output as it comes."""

    def test_joins_what_a_pipe_cuts_in_pieces(self, pipe: tuple[int, int]) -> None:
        """A letter of several bytes and a carriage return survive a cut between."""
        got: list[str] = []
        os.write(pipe[1], "zwölf\r".encode()[:3])
        reader = idle.lines(pipe[0], 0)
        os.write(pipe[1], "zwölf\r".encode()[3:])
        os.write(pipe[1], b"\nnext\rlast")
        os.close(pipe[1])
        got.extend(reader)
        assert got == ["zwölf\n", "next\n", "last"]

    def test_stuck_when_nothing_moves(self, pipe: tuple[int, int]) -> None:
        """No output and the same counters for the stated time is an end."""
        with pytest.raises(idle.Stalled, match="no progress for 0 s"):
            list(
                idle.lines(
                    pipe[0], 7, 0.05, tick_s=0.01, activity=lambda session: (session, 0)
                )
            )
        os.close(pipe[1])

    def test_silent_work_is_no_standstill(self, pipe: tuple[int, int]) -> None:
        """A program that prints nothing but uses the processor goes on."""
        ticks = iter(range(1, 1000))
        looks: list[int] = []

        def activity(session: int) -> tuple[int, int]:
            looks.append(session)
            if len(looks) == 20:
                os.close(pipe[1])
            return next(ticks), 0

        got = list(idle.lines(pipe[0], 7, 0.05, tick_s=0.01, activity=activity))
        assert got == [] and len(looks) >= 20


class TestSessionActivity:
    """Signs of life of a session."""

    def test_adds_up_the_session(self, tmp_path: Path) -> None:
        """Ticks and bytes of members count, other sessions and odd entries do not."""

        def process(pid: int, session: int, ticks: int, io: str | None) -> None:
            folder = tmp_path / str(pid)
            folder.mkdir()
            fields = ["S", "1", "1", str(session), *["0"] * 7, str(ticks), *["0"] * 5]
            (folder / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}")
            if io is not None:
                (folder / "io").write_text(io)

        process(10, 10, 3, "rchar: 5\nwchar: 6\n")
        process(11, 10, 4, None)
        process(12, 99, 100, "rchar: 500\nwchar: 6\n")
        (tmp_path / "self").mkdir()
        (tmp_path / "13").mkdir()
        assert idle.session_activity(10, tmp_path) == (7, 11)

    def test_sees_ourselves(self) -> None:
        """The real /proc answers for our own session."""
        ticks, moved = idle.session_activity(os.getsid(0))
        assert ticks >= 0 and moved > 0
