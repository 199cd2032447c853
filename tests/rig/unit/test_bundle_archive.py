# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The files of a bundle: whole or absent, and nobody else's are replaced."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.bundle_bench import Bench
from tests.rig.support.bundle_bench import bench as bench
from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.steps.bundling import archive as archives


class TestFile:
    """The archive itself."""

    def test_shape(self, bench: Bench) -> None:
        """Only the owner reads it, and nothing in it tells who made it."""
        bench.healthy()
        result = bench.make()
        archive = Path(result.path)
        assert stat.S_IMODE(archive.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(result.summary).stat().st_mode) == 0o600
        assert Path(result.summary).name == "out.md"
        assert result.size == archive.stat().st_size
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
        names = [entry.name for entry in entries]
        assert names == sorted(names) and len(set(names)) == len(names)
        assert {(e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0, 0, "", "")}
        assert {e.mode for e in entries if e.isfile()} == {0o600}
        # neither a name nor a comment in the outer header
        assert archive.read_bytes()[3] == 0
        assert sorted(p.name for p in archive.parent.glob("*out.*")) == [
            "out.md",
            "out.tar.gz",
        ]

    def test_same_input_same_bytes(self) -> None:
        """The order of the files makes no difference."""
        one = archives.packed({"b": b"2", "a": b"1"}, "top", 1e9)
        two = archives.packed({"a": b"1", "b": b"2"}, "top", 1e9)
        assert one == two

    def test_show_writes_nothing(self, bench: Bench) -> None:
        """``--show`` lists names, sizes and what is replaced, and leaves no file."""
        bench.healthy()
        before = sorted(bench.at.folder.rglob("*"))
        result = bench.make(show=True)
        assert [p for p in sorted(bench.at.folder.rglob("*")) if p not in before] == [
            bench.at.folder / "etc",
            bench.at.folder / "etc" / "hostname",
            bench.at.folder / "etc" / "machine-id",
            bench.at.folder / "etc" / "resolv.conf",
        ]
        assert (result.path, result.summary, result.size) == (None, None, 0)
        said = bench.out.getvalue()
        assert "summary.md" in said and "KIND" in said and "wrote" not in said
        assert result.to_json()["contents"][0]["name"]

    @pytest.mark.parametrize("taken", ["out.tar.gz", "out.md"])
    def test_refuses_to_overwrite(self, bench: Bench, taken: str) -> None:
        """What is there is left as it is, and nothing is looked at first."""
        (bench.at.folder / taken).write_text("mine")
        with pytest.raises(UsageError, match="is there already"):
            bench.make()
        assert (bench.at.folder / taken).read_text() == "mine"

    @pytest.mark.parametrize(
        ("name", "why"),
        [("", "is a folder"), ("no/where.tar.gz", "there is no folder")],
    )
    def test_refuses_what_is_no_file(self, bench: Bench, name: str, why: str) -> None:
        """A folder, or a file in a folder that is not there, is a wrong --output."""
        with pytest.raises(UsageError, match=why):
            bench.make(output=bench.at.folder / name)

    @pytest.mark.parametrize(
        ("name", "summary"),
        [("a.tar.gz", "a.md"), ("a.tgz", "a.md"), ("a", "a.md"), ("a.b", "a.b.md")],
    )
    def test_names(self, tmp_path: Path, name: str, summary: str) -> None:
        """The summary is called as the archive."""
        found = archives.outputs(tmp_path / name, tmp_path, 0)
        assert found == (tmp_path / name, tmp_path / summary)

    def test_default_name(self, tmp_path: Path) -> None:
        """Without --output the name tells the time and nothing else."""
        archive, _ = archives.outputs(None, tmp_path, 0)
        assert archive.name == "rig-bundle-19700101-000000.tar.gz"

    def test_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No half file stays behind."""
        fsync = os.fsync
        calls: list[int] = []

        def full(fd: int) -> None:
            calls.append(fd)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            fsync(fd)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StepFailed, match="No space left"):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert list(tmp_path.iterdir()) == []

    def test_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C between the two files takes the first one away again."""
        link = os.link

        def stop(src: Any, dst: Any) -> None:
            if Path(dst).name == "b":
                raise KeyboardInterrupt
            link(src, dst)

        monkeypatch.setattr(os, "link", stop)
        with pytest.raises(KeyboardInterrupt):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert list(tmp_path.iterdir()) == []

    def test_race(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that appears at the last moment is not replaced either."""
        (tmp_path / "b").write_text("mine")
        with pytest.raises(UsageError):
            archives.place({tmp_path / "a": b"1", tmp_path / "b": b"2"})
        assert [p.name for p in tmp_path.iterdir()] == ["b"]
        assert (tmp_path / "b").read_text() == "mine"

    def test_no_hard_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file system without hard links gets a rename."""

        def refuse(src: Any, dst: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        archives.place({tmp_path / "a": b"1"})
        assert (tmp_path / "a").read_bytes() == b"1"
        assert len(list(tmp_path.iterdir())) == 1


def test_gzip_is_whole(tmp_path: Path) -> None:
    """Other programs can unpack it."""
    data = archives.packed({"a/b.txt": "é".encode()}, "top", 1e9)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        assert tar.getnames() == ["top", "top/a/b.txt"]
