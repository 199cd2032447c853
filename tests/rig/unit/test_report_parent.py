# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A command ends with the process that started it."""

from __future__ import annotations

import io
import os
import threading

import pytest

from tests.rig.support.crashes import console as console
from tests.rig.support.crashes import screen as screen
from tools.rig.base import report
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode
from tools.rig.base.report import run_command


class TestWatchParent:
    """A step ends with its parent."""

    def stopped(self, env: dict[str, str]) -> bool:
        """Say whether the watch sees a parent that is gone."""
        gone = threading.Event()
        thread = report.watch_parent(env, gone=gone.set, look_s=0.01)
        if thread is None:
            return False
        thread.join(0.2)
        return gone.is_set()

    @pytest.mark.parametrize("value", [None, "", "abc", "-1"])
    def test_not_asked(self, value: str | None) -> None:
        """Without a pid nothing is watched."""
        env = {} if value is None else {"RIG_PARENT": value}
        assert report.watch_parent(env) is None

    def test_parent_dies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new parent means that the old one is gone."""
        parents = iter([77, 77, 77])
        monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))
        monkeypatch.setattr(report, "_start_ticks", lambda pid: "5")
        assert self.stopped({"RIG_PARENT": "77"})

    def test_parent_lives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As long as it is there, nothing happens."""
        stop = threading.Event()
        monkeypatch.setattr(os, "getppid", lambda: 1 if stop.is_set() else 77)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: "5")
        assert not self.stopped({"RIG_PARENT": "77"})
        stop.set()

    def test_behind_a_wrapper(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a process in between, the named one is told from a later namesake."""
        starts = iter(["5", "5"])
        monkeypatch.setattr(os, "getppid", lambda: 88)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: next(starts, "6"))
        assert self.stopped({"RIG_PARENT": "77"})

    def test_dead_before_we_looked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An orphan whose parent is gone already stops at once."""
        monkeypatch.setattr(os, "getppid", lambda: 1)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: None)
        assert self.stopped({"RIG_PARENT": "77"})

    def test_above_the_parent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever stands above our parent may be watched, too."""
        ticks = {77: "5", 66: "3"}
        monkeypatch.setattr(os, "getppid", lambda: 77)
        monkeypatch.setattr(report, "_start_ticks", ticks.get)
        stop = threading.Event()
        thread = report.watch_parent(
            {"RIG_PARENT": "66:3,77"}, gone=stop.set, look_s=0.01
        )
        assert thread is not None and not stop.wait(0.1)
        del ticks[66]
        assert stop.wait(5)

    @pytest.mark.parametrize("ticks", [None, "4"])
    def test_died_before_us(
        self, monkeypatch: pytest.MonkeyPatch, ticks: str | None
    ) -> None:
        """One that is named with its start time need not be seen alive by us."""
        monkeypatch.setattr(os, "getppid", lambda: 77)
        monkeypatch.setattr(
            report, "_start_ticks", lambda pid: "5" if pid == 77 else ticks
        )
        assert self.stopped({"RIG_PARENT": "66:3,77"})

    def test_left_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable from somebody else's run ends nothing."""
        monkeypatch.setattr(os, "getppid", lambda: 88)
        monkeypatch.setattr(report, "_start_ticks", lambda pid: None)
        assert report.watch_parent({"RIG_PARENT": "77"}) is None

    def test_a_command_obeys(
        self,
        console: Console,
        screen: io.StringIO,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A running command is interrupted, and hands the variable to nobody."""
        monkeypatch.setenv("RIG_PARENT", str(2**22 + 1))
        monkeypatch.setattr(os, "getppid", lambda: 1)

        def body(console: Console) -> None:
            assert "RIG_PARENT" not in os.environ
            threading.Event().wait(5)

        assert run_command(body, console=console) == ExitCode.INTERRUPTED
        assert screen.getvalue() == "error: interrupted\n"

    def test_start_ticks(self) -> None:
        """A process has one start time; one that is not there has none."""
        own = report._start_ticks(os.getpid())
        assert own is not None and own.isdigit()
        assert report._start_ticks(2**22 + 1) is None
