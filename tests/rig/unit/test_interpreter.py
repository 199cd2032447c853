# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""With which Python an environment is made: a decision from facts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.candidates import PY311, PY312
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import interpreter
from tools.rig.builds.interpreter import Choice, Wish
from tools.rig.host.pythons import Python

BARE = replace(PY312, headers=False)


class TestPython:
    """Which interpreter is taken."""

    def test_wanted_is_here(self) -> None:
        """Nothing is brought when the wanted one is installed."""
        assert interpreter.decide(Wish("3.12"), [PY311, PY312]) == Choice(PY312)

    def test_wanted_is_brought_or_replaced(self) -> None:
        """Uv is asked first, an installed one stands by."""
        got = interpreter.decide(Wish("3.12", requires=">=3.10"), [PY311])
        assert (got.installed, got.download) == (PY311, "3.12")
        assert str(got) == "3.12 brought by uv, else 3.11.2 (/usr/bin/python3.11)"
        assert str(interpreter.decide(Wish("3.12"), [])) == "3.12 brought by uv"

    def test_offline(self) -> None:
        """Without a network the installed one is taken, or none will do."""
        got = interpreter.decide(Wish("3.12", offline=True), [PY311])
        assert got.installed == PY311 and not got.download
        with pytest.raises(CannotError, match="no Python that will do") as caught:
            interpreter.decide(Wish("3.12", offline=True), [])
        assert caught.value.hint == "apt-get install python3.12 python3.12-dev"

    def test_target_does_not_admit_the_profiles(self) -> None:
        """The target's own word is stronger than the profile's."""
        got = interpreter.decide(Wish("3.12", requires="<3.12"), [PY311, PY312])
        assert got.installed == PY311 and not got.download

    def test_the_users_version_is_a_must(self) -> None:
        """It is brought or it fails; no other one is taken."""
        got = interpreter.decide(Wish("3.13", by_user=True), [PY312])
        assert got.installed is None and got.download == "3.13"
        with pytest.raises(CannotError, match="does not admit Python 3.9"):
            interpreter.decide(Wish("3.9", by_user=True, requires=">=3.10"), [PY312])
        with pytest.raises(CannotError):
            interpreter.decide(Wish("3.13", by_user=True, offline=True), [PY312])

    def test_headers(self) -> None:
        """Without Python.h the package that brings it is named."""
        wish = Wish("3.12", offline=True, need_headers=True)
        with pytest.raises(CannotError, match="without its headers") as caught:
            interpreter.decide(wish, [BARE])
        assert caught.value.hint == "apt-get install python3.12-dev"
        assert interpreter.decide(Wish("3.12"), [BARE]).installed == BARE

    @pytest.mark.parametrize(
        ("named", "problem"),
        [
            (replace(PY312, problem="no such program"), "no such program"),
            (replace(PY312, version="3.9.1"), "it is 3.9.1, the target asks for"),
            (BARE, r"its headers \(Python.h\) are not installed"),
        ],
    )
    def test_named_one_is_unfit(self, named: Python, problem: str) -> None:
        """An interpreter that the user names is taken or refused, never replaced."""
        wish = Wish("3.12", named=named, requires=">=3.10", need_headers=True)
        with pytest.raises(CannotError, match=problem):
            interpreter.decide(wish, [PY312])

    def test_named_one_fits(self) -> None:
        """A good one is taken whatever else there is."""
        wish = Wish("3.12", named=PY311)
        assert interpreter.decide(wish, [PY312]).installed == PY311

    def test_keep(self) -> None:
        """The environment's own stays unless the target or the user objects."""
        there = Path("/e")
        kept = interpreter.keep(Wish("3.12"), "3.11.2", there).installed
        assert kept is not None and kept.path == there / "bin/python"
        for wish in (
            Wish("3.12", requires=">=3.12"),
            Wish("3.12", by_user=True),
            Wish("3.12", named=PY312),
        ):
            with pytest.raises(StepFailed, match="has Python 3.11.2") as caught:
                interpreter.keep(wish, "3.11.2", there)
            assert caught.value.hint == "mv /e /e.old"
        assert interpreter.keep(Wish("3.11", by_user=True), "3.11.2", there).installed

    def test_keep_for_one_that_can_never_be_used(self) -> None:
        """No environment that works is to be moved away for what the target refuses."""
        old = replace(PY312, version="2.7.18")
        for wish in (
            Wish("2.7", by_user=True, requires=">=3.10"),
            Wish("2.7", by_user=True, requires=">=3.10", named=old),
        ):
            with pytest.raises(CannotError, match=r"2\.7") as caught:
                interpreter.keep(wish, "3.12.4", Path("/e"))
            assert caught.value.hint == "unset ONECAT_PYTHON"

    def test_missing_tells_what_uv_said(self) -> None:
        """The reason of the download's failure is among the details."""
        got = interpreter.missing(Wish("3.12"), [replace(PY311, problem="x")], "dns")
        assert got.details == (
            "/usr/bin/python3.11: 3.11.2 x",
            "uv could not bring it: dns",
        )
