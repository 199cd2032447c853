# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Asking a child that may hang."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tools.rig.base import abandon


class Child:
    """Stands for a process: answers, hangs until killed, or hangs for good."""

    def __init__(self, answer: str | None, *, dies: bool = True) -> None:
        self.pid = 2**22 + 1
        self.returncode = 0
        self.answer = answer
        self.dies = dies
        self.stdin = self.stderr = None
        self.stdout = io.StringIO()

    def communicate(self, text: str, timeout: float) -> tuple[str, str]:
        """Answer, or run out of time with half a line."""
        if self.answer == "ctrl-c":
            raise KeyboardInterrupt
        if self.answer is None:
            raise subprocess.TimeoutExpired("x", timeout, output=b"@ /nas\n")
        return self.answer + text, ""

    def wait(self, timeout: float) -> int:
        """End, or not."""
        if not self.dies:
            raise subprocess.TimeoutExpired("x", timeout)
        return -9

    def poll(self) -> int | None:
        """Say whether it is gone."""
        return -9 if self.dies else None


def spawner(child: Child) -> Any:
    """Return a function that starts `child`."""

    def spawn(args: Sequence[str], *, env: Mapping[str, str] | None) -> Child:
        assert args == ("prog", "arg")
        return child

    return spawn


class TestAsk:
    """Asking one question."""

    def test_answer(self) -> None:
        """What the child prints comes back."""
        got = abandon.ask(
            ["prog", "arg"], timeout=1, input_text="!", spawn=spawner(Child("hello"))
        )
        assert got.ok and got.out == "hello!" and not got.timed_out

    def test_keeps_what_was_said_before_the_time_was_up(self) -> None:
        """A hanging child's last words say where it hangs."""
        got = abandon.ask(["prog", "arg"], timeout=1, spawn=spawner(Child(None)))
        assert got.timed_out and got.out == "@ /nas\n" and not got.ok

    def test_a_child_that_cannot_die_is_left(self) -> None:
        """Nobody joins a process in uninterruptible sleep."""
        child = Child(None, dies=False)
        abandon.ask(["prog", "arg"], timeout=1, spawn=spawner(child))
        assert abandon.left_behind() == [child.pid]
        child.dies = True
        assert abandon.left_behind() == []

    def test_interrupt_passes(self) -> None:
        """Ctrl-C ends the child and goes on upwards."""
        child = Child("ctrl-c")
        with pytest.raises(KeyboardInterrupt):
            abandon.ask(["prog", "arg"], timeout=1, spawn=spawner(child))
        assert child.stdout.closed
