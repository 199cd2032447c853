# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Generated folders that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.steps.trees import Tree, is_plain, link_for, plain_path, publish

_TREE = Tree("t-1", {"a/b.txt": "text \udcff\n"}, {"c/d": "/target"})


def test_a_tree_is_written_whole_and_private(tmp_path: Path) -> None:
    """Files, links and the sentinel are there, for the user only."""
    made = publish(tmp_path / "top", _TREE)
    assert (made / "a/b.txt").read_bytes() == b"text \xff\n"
    assert os.readlink(made / "c/d") == "/target"
    assert (made / SENTINEL).is_file()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE((made / "a/b.txt").stat().st_mode) == 0o600
    assert [p.name for p in (tmp_path / "top").iterdir()] == ["t-1"]


def test_an_intact_tree_is_left_alone(tmp_path: Path) -> None:
    """What a program put beside our files stays too."""
    made = publish(tmp_path, _TREE)
    (made / "extra").touch()
    before = made.stat().st_ino
    assert publish(tmp_path, _TREE) == made
    assert made.stat().st_ino == before
    assert (made / "extra").exists()


@pytest.mark.parametrize("damage", ["changed", "gone", "link"])
def test_a_damaged_tree_is_replaced(tmp_path: Path, damage: str) -> None:
    """A half-deleted or edited folder heals by itself."""
    made = publish(tmp_path, _TREE)
    if damage == "changed":
        (made / "a/b.txt").write_text("other")
    elif damage == "gone":
        (made / "a/b.txt").unlink()
    else:
        (made / "c/d").unlink()
        (made / "c/d").symlink_to("/elsewhere")
    publish(tmp_path, _TREE)
    assert (made / "a/b.txt").read_bytes() == b"text \xff\n"
    assert os.readlink(made / "c/d") == "/target"
    assert [p.name for p in tmp_path.iterdir()] == ["t-1"]
    assert not (made / ".replaced").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in the way ends in a message, not in a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(StepFailed, match="cannot write") as caught:
        publish(tmp_path / "file", _TREE)
    assert caught.value.hint.startswith("ls -ld")


def test_losing_a_race_for_the_same_content_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When another process made the folder first, its work is used."""
    real = os.rename

    def late(src: Path, dst: Path) -> None:
        monkeypatch.setattr(os, "rename", real)
        publish(tmp_path, _TREE)
        real(src, dst)

    monkeypatch.setattr(os, "rename", late)
    made = publish(tmp_path, _TREE)
    assert (made / "a/b.txt").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["t-1"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("/a/b-1.2_c", True),
        ("/中文/é", True),
        ("/a b", False),
        ("/a,b", False),
        ('/a"b', False),
        ("/a'b", False),
        ("/a$b", False),
        ("/a\\b", False),
    ],
)
def test_what_nvcc_takes_as_one_word(name: str, plain: bool) -> None:
    """Blanks, quotes, commas and backslashes are what it splits or changes."""
    assert is_plain(Path(name)) is plain


def test_a_plain_path_stays_itself(tmp_path: Path) -> None:
    """No link is made where none is needed."""
    assert plain_path(Path("/a/b"), [tmp_path]) == Path("/a/b")
    assert list(tmp_path.iterdir()) == []


def test_an_odd_path_gets_a_private_link(tmp_path: Path) -> None:
    """The link has the same name each time, and a wrong one is put right."""
    odd = tmp_path / "a b"
    link = (
        plain_path(odd, [tmp_path / "p"]) if (tmp_path / "p").mkdir() is None else odd
    )
    assert is_plain(link.relative_to(tmp_path))
    assert os.readlink(link) == str(odd)
    assert stat.S_IMODE(link.parent.stat().st_mode) == 0o700
    link.unlink()
    link.symlink_to("/elsewhere")
    assert plain_path(odd, [tmp_path / "p"]) == link
    assert os.readlink(link) == str(odd)
    assert sorted(p.name for p in link.parent.iterdir()) == sorted(
        [SENTINEL, link.name]
    )


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    """Where somebody prepared the place, the next one is taken, or the step ends."""
    odd = Path("/a b")
    open_place, good = tmp_path / "open", tmp_path / "good"
    link_for(odd, open_place).parent.mkdir(parents=True)
    link_for(odd, open_place).parent.chmod(0o777)
    good.mkdir()
    assert plain_path(odd, [open_place, good]) == link_for(odd, good)
    with pytest.raises(StepFailed, match="cannot be told") as caught:
        plain_path(odd, [open_place, tmp_path / "missing"])
    assert "ONECAT_LOCAL_ROOT" in caught.value.hint
