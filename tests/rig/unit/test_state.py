# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Files that survive a crash, and folders that are ours to delete."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base import state
from tools.rig.base.errors import StepFailed


def full(*args: Any, **kwargs: Any) -> Any:
    """Stand for a system call on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def names(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(p.name for p in folder.iterdir())


class TestWrite:
    """Writing whole or not at all."""

    def test_round_trip(self, tmp_path: Path) -> None:
        """What is written is read back, folders are made, and nothing else is left."""
        path = tmp_path / "a b" / "ü.json"
        state.write_json(path, {"x": [1, "ü"], "p": Path("/y")})
        assert state.read_json(path) == {"x": [1, "ü"], "p": "/y"}
        assert names(path.parent) == ["ü.json"]

    def test_a_path_that_is_no_utf8_keeps_its_bytes(self, tmp_path: Path) -> None:
        """File names of old systems are bytes, and survive."""
        state.write_text(tmp_path / "f", "x\udcff\n")
        assert (tmp_path / "f").read_bytes() == b"x\xff\n"

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_full_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        """The old file stays, nothing lies beside it, and the disk is named."""
        path = tmp_path / "a b.json"
        state.write_json(path, {"old": 1})
        monkeypatch.setattr(os, call, full)
        with pytest.raises(StepFailed, match="No space left") as caught:
            state.write_json(path, {"new": 1})
        assert caught.value.hint == f"df -h {tmp_path}"
        assert state.read_json(path) == {"old": 1}
        assert names(tmp_path) == ["a b.json"]

    def test_interrupt_before_the_rename(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C between writing and renaming leaves the old file alone."""
        path = tmp_path / "f.json"
        state.write_json(path, {"old": 1})

        def interrupted(*args: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            state.write_json(path, {"new": 1})
        assert state.read_json(path) == {"old": 1}
        assert names(tmp_path) == ["f.json"]

    def test_a_file_where_a_folder_is_needed(self, tmp_path: Path) -> None:
        """A folder that cannot be made is an expected failure."""
        (tmp_path / "f").write_text("")
        with pytest.raises(StepFailed, match="cannot write"):
            state.write_text(tmp_path / "f" / "g", "x")

    def test_a_disk_that_cannot_flush_folders(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some file systems refuse to flush a folder; the file counts all the same."""
        real = os.fsync

        def only_files(fd: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                raise OSError(errno.EINVAL, "Invalid argument")
            real(fd)

        monkeypatch.setattr(os, "fsync", only_files)
        state.write_text(tmp_path / "f", "x")
        assert (tmp_path / "f").read_text() == "x"


class TestRead:
    """Reading what may be broken."""

    def test_missing(self, tmp_path: Path) -> None:
        """No file is no error."""
        assert state.read_json(tmp_path / "f") is None

    @pytest.mark.parametrize(
        "content", [b"", b'{"a": ', b"\xff\xfe", b"[" * 200_000], ids="abcd"
    )
    def test_corrupt(self, tmp_path: Path, content: bytes) -> None:
        """A broken file is named, left alone, and can be put out of the way."""
        path = tmp_path / "a b.json"
        path.write_bytes(content)
        with pytest.raises(StepFailed) as caught:
            state.read_json(path)
        assert str(path) in caught.value.what
        assert caught.value.hint == f"mv '{path}' '{path}.broken'"
        assert path.read_bytes() == content

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        """What is no file at all is not called corrupt."""
        with pytest.raises(StepFailed, match="Is a directory"):
            state.read_json(tmp_path)


class TestMake:
    """Folders of ours."""

    def test_layout(self, tmp_path: Path) -> None:
        """All folders lie below the root, and asking for them makes none."""
        root = state.StateRoot(tmp_path / "root")
        parts = [
            "venvs",
            "toolkits",
            "records",
            "logs",
            "cache",
            "tmp",
            "shims",
            "artifacts",
            "deps",
        ]
        assert [getattr(root, p) for p in parts] == [root.path / p for p in parts]
        assert not root.path.exists()

    def test_root_first(self, tmp_path: Path) -> None:
        """A folder below a new root makes the root ours, too."""
        root = state.StateRoot(tmp_path / "root")
        root.make(root.venvs)
        assert names(root.path) == [state.SENTINEL, "venvs"]

    def test_sentinel_only_in_what_was_empty(self, tmp_path: Path) -> None:
        """A folder with other people's files never becomes ours."""
        root = state.StateRoot(tmp_path)
        assert names(root.make(tmp_path / "new")) == [state.SENTINEL]
        assert names(root.make(tmp_path / "new")) == [state.SENTINEL]
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "thesis").write_text("")
        assert names(root.make(tmp_path / "theirs")) == ["thesis"]

    def test_not_possible(self, tmp_path: Path) -> None:
        """A file where the folder should be is an expected failure."""
        (tmp_path / "f").write_text("")
        with pytest.raises(StepFailed, match="cannot write"):
            state.StateRoot(tmp_path).make(tmp_path / "f")


class TestRemove:
    """Deletion asks for proof."""

    def test_ours(self, tmp_path: Path) -> None:
        """A folder with the sentinel goes; links in it go, their targets stay."""
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "thesis").write_text("")
        made = state.StateRoot(tmp_path).make(tmp_path / "made")
        (made / "link").symlink_to(tmp_path / "theirs")
        (made / "deep" / "er").mkdir(parents=True)
        (made / "file").write_text("")
        state.remove_made(made)
        assert not made.exists()
        assert names(tmp_path / "theirs") == ["thesis"]

    def test_missing_or_empty(self, tmp_path: Path) -> None:
        """Nothing to delete is no error, nor is what a crash left empty."""
        state.remove_made(tmp_path / "none")
        (tmp_path / "empty").mkdir()
        state.remove_made(tmp_path / "empty")
        assert names(tmp_path) == []

    def test_not_ours(self, tmp_path: Path) -> None:
        """A folder without the sentinel stays, and so does a link to one with it."""
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "thesis").write_text("")
        made = state.StateRoot(tmp_path).make(tmp_path / "made")
        (tmp_path / "link").symlink_to(made)
        (tmp_path / "dangling").symlink_to(tmp_path / "none")
        for path in (tmp_path / "theirs", tmp_path / "link", tmp_path / "dangling"):
            with pytest.raises(StepFailed, match="will not delete"):
                state.remove_made(path)
        assert names(tmp_path) == ["dangling", "link", "made", "theirs"]

    def test_broken_off(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A deletion that failed half-way can be taken up: the sentinel goes last."""
        made = state.StateRoot(tmp_path).make(tmp_path / "made")
        (made / "deep").mkdir()
        with monkeypatch.context() as patch:

            def busy(path: Path) -> None:
                raise OSError(errno.EBUSY, "Device or resource busy", str(path))

            patch.setattr(shutil, "rmtree", busy)
            with pytest.raises(StepFailed, match=r"busy \(.*deep\)"):
                state.remove_made(made)
        assert (made / state.SENTINEL).is_file()
        state.remove_made(made)
        assert not made.exists()


class TestNames:
    """Names of places."""

    def test_place_id(self, tmp_path: Path) -> None:
        """The name tells two checkouts of one name apart, and holds nothing odd."""
        one, two = tmp_path / "a" / "我的 vLLM", tmp_path / "b" / "我的 vLLM"
        assert state.place_id(one) != state.place_id(two)
        assert state.place_id(one) == state.place_id(tmp_path / "a" / ".." / one)
        assert state.place_id(one).startswith("-vLLM-")
        assert state.place_id(Path("/")).startswith("checkout-")
        assert len(state.place_id(tmp_path / ("x" * 250))) == 64 + 9


def test_json_is_sorted_and_ends_with_a_line_feed(tmp_path: Path) -> None:
    """Records can be compared line by line."""
    state.write_json(tmp_path / "f", {"b": 1, "a": 2})
    text = (tmp_path / "f").read_text()
    assert text == json.dumps({"a": 2, "b": 1}, indent=2) + "\n"
