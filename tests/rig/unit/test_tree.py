# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Sessions and signals."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tools.rig.base import tree


class TestTree:
    """Finding and ending a session."""

    def test_sessions_that_cannot_be_ours(self) -> None:
        """Sessions 0 and 1 hold the kernel, init and strangers."""
        assert tree.session_members(0) == tree.session_members(1) == []
        own = os.getsid(0)
        # 0 where the session began outside of this pid namespace
        assert (os.getpid() in tree.session_members(own)) == (own > 1)

    def test_our_own_session(self) -> None:
        """Nobody ends himself by a slip."""
        with pytest.raises(ValueError, match="lives in"):
            tree.stop_tree(os.getsid(0))

    def test_polite_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SIGTERM goes out once, SIGKILL to whatever is left, however often."""
        sent: list[tuple[int, int]] = []
        seen = [0]

        def members(session: int) -> list[int]:
            seen[0] += 1
            return [7, 8] if seen[0] < 9 else []

        monkeypatch.setattr(tree, "session_members", members)
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append((pid, sig)))
        tree.stop_tree(7, grace=0.05)
        assert sent[:2] == [(7, signal.SIGTERM), (8, signal.SIGTERM)]
        assert set(sent[2:]) == {(7, signal.SIGKILL), (8, signal.SIGKILL)}
        assert seen[0] == 9

    def test_gone_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who leaves on SIGTERM gets nothing else."""
        sent: list[int] = []
        left = iter([[7], [7], []])
        monkeypatch.setattr(tree, "session_members", lambda session: next(left))
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append(sig))
        tree.stop_tree(7)
        assert sent == [signal.SIGTERM]

    def test_second_interrupt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C in the pause leads to SIGKILL at once, and is not lost."""
        sent: list[int] = []
        left = iter([[7], [7], []])

        def sleep(seconds: float) -> None:
            if signal.SIGKILL not in sent:
                raise KeyboardInterrupt

        monkeypatch.setattr(tree, "session_members", lambda session: next(left))
        monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append(sig))
        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(KeyboardInterrupt):
            tree.stop_tree(7)
        assert sent == [signal.SIGTERM, signal.SIGKILL]

    @pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
    def test_signals(self, sig: signal.Signals) -> None:
        """Both signals become one interrupt, and the old handlers come back."""
        before = signal.getsignal(sig)
        with pytest.raises(KeyboardInterrupt), tree.signals_as_interrupts():
            os.kill(os.getpid(), sig)
            signal.sigtimedwait([], 1)
        assert signal.getsignal(sig) is before

    def test_nohup(self) -> None:
        """A lost terminal that the user wants to ignore is ignored."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with tree.signals_as_interrupts():
                os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_other_threads(self) -> None:
        """Outside the main thread nothing is changed and nothing breaks."""
        done = threading.Event()

        def body() -> None:
            with tree.signals_as_interrupts():
                done.set()

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        assert done.is_set()
