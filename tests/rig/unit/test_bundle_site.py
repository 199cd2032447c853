# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How much of a file a bundle takes, and what its collectors may cost."""

from __future__ import annotations

from pathlib import Path

from tests.rig.support.bundled import site
from tools.rig.base.errors import StepFailed
from tools.rig.steps import bundle
from tools.rig.steps.bundling import site as of_site
from tools.rig.steps.bundling.site import Collector, Part, Site, excerpt


class TestExcerpt:
    """Beginning and end of a file."""

    def test_small_file_is_whole(self, tmp_path: Path) -> None:
        """A file that fits is taken as it is."""
        (tmp_path / "a").write_bytes(b"one\r\ntwo\rthree\xff\n")
        assert excerpt(tmp_path / "a") == ("one\ntwo\nthree\ufffd\n",)

    def test_cuts_where_lines_end(self, tmp_path: Path) -> None:
        """No line is cut in two, and the number of bytes left out is told."""
        (tmp_path / "a").write_text("".join(f"line {n:04}\n" for n in range(100)))
        begun, gap, ended = excerpt(tmp_path / "a", 25, 25)
        assert begun == "line 0000\nline 0001"
        assert ended == "line 0098\nline 0099\n"
        assert f"[... {1000 - 19 - 20} bytes" in gap

    def test_no_gap_no_text(self, tmp_path: Path) -> None:
        """A stretch without any gap is left out: half a secret is unknown to all."""
        (tmp_path / "a").write_text("x" * 1000)
        begun, _, ended = excerpt(tmp_path / "a", 100, 100)
        assert (begun, ended) == ("", "")
        (tmp_path / "b").write_text("word " * 200)
        begun, _, ended = excerpt(tmp_path / "b", 12, 12)
        assert (begun, ended) == ("word word", "word word ")

    def test_end_alone(self, tmp_path: Path) -> None:
        """Nothing of the beginning may be asked for."""
        (tmp_path / "a").write_text("one\ntwo\nthree\n")
        assert excerpt(tmp_path / "a", 0, 9)[-1] == "three\n"

    def test_utf16(self, tmp_path: Path) -> None:
        """A log of PowerShell is read, too."""
        (tmp_path / "a").write_bytes("password: x\n".encode("utf-16"))
        assert excerpt(tmp_path / "a") == ("password: x\n",)


def test_collectors_have_limits() -> None:
    """Every collector has a time limit, and no two have one name."""
    names = [one.name for one in bundle.COLLECTORS]
    assert len(set(names)) == len(names)
    assert all(0 < one.limit_s <= 120 for one in bundle.COLLECTORS)


def test_expected_errors_are_notes() -> None:
    """A collector that fails as expected is told by its message."""

    def fail(at: Site) -> list[Part]:
        raise StepFailed("no disk")

    at = site()
    assert of_site.collect([Collector("x", fail)], at) == []
    assert at.problems == ["x: no disk"]
