# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Paths that people type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base import paths
from tools.rig.base.errors import UsageError


class TestNames:
    """What a path may be called."""

    @pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
    def test_line_breaks_are_refused(self, bad: str) -> None:
        """No build tool can quote a line break, so it is refused at the door."""
        with pytest.raises(UsageError, match="line break"):
            paths.checked_path(bad)

    def test_other_odd_names_are_welcome(self) -> None:
        """Spaces, quotes and letters of any script are fine."""
        for name in ("a b", "a'b\"", "ü/我", "\udcff"):
            assert paths.checked_path(name) == Path(name)


class TestTyped:
    """Paths as somebody typed them."""

    def test_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A path is made whole, with the home folder filled in."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", "/home/me")
        assert paths.typed_path("a b") == tmp_path / "a b"
        assert paths.typed_path("~/x") == Path("/home/me/x")

    def test_nobodys_home(self) -> None:
        """A slip in a user's name is wrong usage, and no crash."""
        with pytest.raises(UsageError, match="no home folder") as caught:
            paths.typed_path("~no-such-user-here/x")
        assert caught.value.hint.startswith("./~no-such-user-here/x")

    def test_option(self) -> None:
        """An option that was not given names no path."""
        assert paths.given_path("") is None
        assert paths.given_path("/a/../b") == Path("/a/../b")
