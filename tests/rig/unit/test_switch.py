# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A generation is brought into force, and back."""

from __future__ import annotations

import ctypes
import errno
import os
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.rig.support.places import HEAD, PLACE, Town
from tests.rig.support.power import Layer
from tools.rig.base.errors import InUseError, StepFailed, UsageError
from tools.rig.base.state import SENTINEL, read_json, write_json
from tools.rig.builds import files as file_layer
from tools.rig.builds import generations, journals, switch
from tools.rig.builds.files import Files
from tools.rig.builds.generation import Generation

LIBRARIES = {"pkg/_C.so": "C", "pkg/deep/x.so": "x"}


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Return a fresh place."""
    return Town(tmp_path)


def go(town: Town, to: Generation, **more: Any) -> switch.Switched:
    """Switch."""
    return switch.switch(town.root, PLACE, to, **more)


class TestSwitch:
    """Without trouble."""

    def test_editable(self, town: Town) -> None:
        """Libraries with their modes, the link and the note; nothing hidden is left."""
        one = town.generation("1", LIBRARIES)
        did = go(town, one, head=HEAD)
        paths = tuple(town.checkout / path for path in LIBRARIES)
        assert did.placed == paths
        assert (did.active, did.previous, did.removed) == ("1", None, ())
        assert [p.read_text() for p in paths] == ["C", "x"]
        assert paths[0].stat().st_mode & 0o777 == 0o755
        assert town.link.resolve() == one.folder
        found = switch.active(town.root, PLACE)
        assert found is not None and (found.id, found.active) == ("1", True)
        assert not [p for p in town.top.rglob("*.rig-new")]
        assert not switch.journals_of(town.root, PLACE)[0].exists()

    def test_there_and_back(self, town: Town) -> None:
        """Going back takes away what only the newer one has, and can be undone."""
        one = town.generation("1", LIBRARIES)
        two = town.generation("2", {"pkg/_C.so": "C2", "pkg/new.so": "n"})
        go(town, one)
        assert go(town, two).removed == (town.checkout / "pkg/deep/x.so",)
        did = go(town, generations.find(town.root, PLACE), head=HEAD)
        assert (did.active, did.previous) == ("1", "2")
        assert did.removed == (town.checkout / "pkg/new.so",)
        assert (town.checkout / "pkg/_C.so").read_text() == "C"
        assert generations.find(town.root, PLACE).id == "2"

    def test_once_more(self, town: Town) -> None:
        """The active one again brings back what was deleted; the previous one stays."""
        one, two = town.generation("1", LIBRARIES), town.generation("2", LIBRARIES)
        go(town, one)
        go(town, two)
        (town.checkout / "pkg/_C.so").unlink()
        assert go(town, two).previous == "1"
        assert (town.checkout / "pkg/_C.so").read_text() == "C"

    def test_wheel(self, town: Town) -> None:
        """A wheel's generation leaves the checkout alone, and what is known of it."""
        go(town, town.generation("1", LIBRARIES))
        go(town, town.generation("2"), head="another")
        assert (town.checkout / "pkg/_C.so").read_text() == "C"
        assert generations.placed(town.root, PLACE).id == "1"
        go(town, town.generation("3", {"pkg/_C.so": "3"}))
        assert not (town.checkout / "pkg/deep/x.so").exists()

    def test_open_file(self, town: Town) -> None:
        """Who has the old library open goes on reading it."""
        go(town, town.generation("1", LIBRARIES))
        with (town.checkout / "pkg/_C.so").open() as old:
            go(town, town.generation("2", {"pkg/_C.so": "C2"}))
            assert old.read() == "C"

    def test_not_active(self, town: Town) -> None:
        """Without a link, and with one to elsewhere, none is active."""
        assert switch.active(town.root, PLACE) is None
        town.link.symlink_to(town.checkout)
        assert switch.active(town.root, PLACE) is None


class TestPrevious:
    """Which one there is to go back to."""

    def test_named(self, town: Town) -> None:
        """Who takes a switch back names the one that was there before it."""
        one, two = town.generation("1"), town.generation("2")
        go(town, one)
        go(town, two)
        go(town, town.generation("3"))
        assert go(town, two, previous="1").previous == "1"
        assert generations.find(town.root, PLACE).id == "1"
        assert go(town, one, previous="").previous is None


class TestAdopt:
    """A folder of an earlier version where the link goes."""

    def test_unknown(self, town: Town) -> None:
        """Nothing known: it is kept under its date, and may be deleted one day."""
        town.environment(town.link, "before")
        (town.link / SENTINEL).unlink()
        did = go(town, town.generation("1"))
        assert did.kept is not None and did.kept.name.endswith("-kept")
        assert (did.kept / SENTINEL).exists()
        found = generations.find(town.root, PLACE)
        assert (found.folder, found.mode) == (did.kept, "")

    def test_again(self, town: Town) -> None:
        """After a failure the name that it got stays."""
        town.environment(town.link, "before")
        one = town.generation("1")

        def refuse() -> NoReturn:
            raise InUseError("someone is here")

        with pytest.raises(InUseError):
            go(town, one, before=refuse)
        assert not town.link.is_symlink()
        name = str((read_json(town.link / generations.MARK) or {})["id"])
        os.utime(town.link, (0, 0))
        assert name.endswith("-kept") and go(town, one).previous == name

    def test_name_is_taken(self, town: Town) -> None:
        """It goes over nothing that is there."""
        town.environment(town.link, "before")
        os.utime(town.link, (0, 0))
        one = town.generation("1")
        (town.home / "19700101-000000-kept").mkdir()
        with pytest.raises(StepFailed, match="cannot keep"):
            go(town, one)
        assert (town.link / "env.txt").read_text() == "before"


class TestRefused:
    """Nothing is changed."""

    def test_in_use(self, town: Town) -> None:
        """The last look may say no, when all is written; it is taken back."""
        go(town, town.generation("1", LIBRARIES))
        before, seen = town.view(), []

        def refuse() -> NoReturn:
            seen.extend(town.checkout.rglob("*.rig-new"))
            raise InUseError("someone is here")

        with pytest.raises(InUseError):
            go(town, town.generation("2", {"f/y.so": "y"}), before=refuse)
        assert len(seen) == 1 and town.view() == before

    def test_other_commit(self, town: Town) -> None:
        """Libraries of another commit are refused, unless forced."""
        one = town.generation("1", LIBRARIES)
        with pytest.raises(UsageError, match="are of a{40}, the checkout is at b"):
            go(town, one, head="b")
        assert go(town, one, head="b", force=True).active == "1"

    def test_incomplete(self, town: Town) -> None:
        """One without a mark, or of another place, is not switched to."""
        one = town.generation("1")
        (one.folder / generations.MARK).unlink()
        with pytest.raises(StepFailed, match="is not complete"):
            go(town, one)
        with pytest.raises(StepFailed, match="is not complete"):
            switch.switch(town.root, "elsewhere", town.generation("2"))

    @pytest.mark.parametrize("path", ["../evil.so", "/evil.so", "pkg/../../evil.so"])
    def test_out_of_the_tree(self, town: Town, path: str) -> None:
        """A library that leads out of the checkout is refused."""
        with pytest.raises(StepFailed, match="leads out of its tree"):
            go(town, town.generation("1", {path: "evil"}))

    def test_folder_in_the_way(self, town: Town) -> None:
        """A folder with a library's name is named before anything is written."""
        go(town, town.generation("1"))
        (town.checkout / "pkg/_C.so").mkdir()
        before = town.view()
        with pytest.raises(StepFailed, match="is a folder"):
            go(town, town.generation("2", LIBRARIES))
        assert town.view() == before

    def test_file_in_the_way(self, town: Town) -> None:
        """So is a file where a folder should be."""
        (town.checkout / "fresh").write_text("mine")
        with pytest.raises(StepFailed, match="cannot write"):
            go(town, town.generation("1", {"fresh/x.so": "x"}))
        assert (town.checkout / "fresh").read_text() == "mine"

    @pytest.mark.parametrize("harm", ["gone", "text", "damaged", "member"])
    def test_wheel(self, town: Town, harm: str) -> None:
        """A wheel that is gone, cut or damaged leaves everything as it was."""
        go(town, town.generation("1", LIBRARIES))
        two = town.generation("2", {"pkg/_C.so": "new C"})
        before, wheel = town.view(), Path(two.wheel)
        if harm == "gone":
            wheel.unlink()
        elif harm == "text":
            wheel.write_text("no wheel")
        elif harm == "damaged":
            wheel.write_bytes(wheel.read_bytes().replace(b"new C", b"bad C", 1))
        else:
            zipfile.ZipFile(wheel, "w").close()
        with pytest.raises(StepFailed, match="is gone" if harm == "gone" else "unpack"):
            go(town, two)
        assert town.view() == before

    def test_first_rename(self, town: Town) -> None:
        """When the very first rename is refused, all of it is taken back."""
        go(town, town.generation("1", LIBRARIES))
        before = town.view()

        class NoRename(Layer):
            def before(self, name: str, path: Path) -> None:
                if name == "rename" and path.parent == town.root.venvs:
                    raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

        with pytest.raises(StepFailed, match="cannot finish placing") as caught:
            go(town, town.generation("2", {"pkg/_C.so": "2"}), files=NoRename())
        assert "Nothing was changed" in caught.value.usual
        assert town.view() == before and switch.settle(town.root, PLACE) == ""

    def test_a_later_rename(self, town: Town) -> None:
        """After the first one the next command goes on."""
        go(town, town.generation("1", LIBRARIES))

        class NoRename(Layer):
            def before(self, name: str, path: Path) -> None:
                if name == "rename" and path.parent == town.checkout / "pkg":
                    raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

        with pytest.raises(StepFailed, match="cannot finish placing"):
            go(town, town.generation("2", {"pkg/_C.so": "2"}), files=NoRename())
        assert switch.settle(town.root, PLACE) == "finished"
        assert (town.checkout / "pkg/_C.so").read_text() == "2"
        assert not (town.checkout / "pkg/deep/x.so").exists()

    @pytest.mark.parametrize("at", ["unpack", "rename"])
    def test_ctrl_c(self, town: Town, at: str) -> None:
        """An interrupt takes back what was written, or makes the renames to the end."""
        go(town, town.generation("1", LIBRARIES))
        before = town.view()

        class Interrupted(Layer):
            done = False

            def before(self, name: str, path: Path) -> None:
                here = name == at and path.parent == town.checkout / "pkg"
                if here and not self.done:
                    self.done = True
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            go(town, town.generation("2", {"pkg/_C.so": "2"}), files=Interrupted())
        assert switch.settle(town.root, PLACE) == ""
        if at == "unpack":
            assert town.view() == before
        else:
            assert (town.checkout / "pkg/_C.so").read_text() == "2"


class TestSettle:
    """Journals, those of an earlier version too."""

    def test_earlier_version(self, town: Town) -> None:
        """A journal of libraries alone is understood where it lay then."""
        new, path = town.checkout / ".x.so.rig-new", town.checkout / "x.so"
        new.write_text("late")
        file = switch.journals_of(town.root, PLACE)[1]
        write_json(file, {"phase": "switch", "pairs": [[str(new), str(path)]]})
        assert switch.settle(town.root, PLACE) == "finished"
        assert path.read_text() == "late" and not file.exists()

    def test_undo_leaves_what_is_not_ours(self, town: Town) -> None:
        """A folder that holds something by now is not removed."""
        folder = town.checkout / "fresh"
        folder.mkdir()
        (folder / "theirs").touch()
        new = folder / ".y.so.rig-new"
        new.touch()
        file = switch.journals_of(town.root, PLACE)[0]
        data = {"phase": "staging", "pairs": [[str(new), str(folder / "y.so")]]}
        write_json(file, {**data, "folders": [str(folder)]})
        assert switch.settle(town.root, PLACE) == "undone"
        assert [p.name for p in folder.iterdir()] == ["theirs"]

    def test_undo_that_is_refused(self, town: Town) -> None:
        """What cannot be taken back is a message; the journal stays."""
        new = town.checkout / ".x.rig-new"
        (new / "inside").mkdir(parents=True)
        file = switch.journals_of(town.root, PLACE)[0]
        write_json(file, {"phase": "staging", "pairs": [[str(new), "/x"]]})
        with pytest.raises(StepFailed, match="cannot take back"):
            switch.settle(town.root, PLACE)
        assert read_json(file)["phase"] == "staging"
        assert not journals.undo(file, Files())

    @pytest.mark.parametrize("content", [{"a": 1}, [1], {"phase": "switch"}, "text"])
    def test_no_journal(self, town: Town, content: object) -> None:
        """A file of another kind is named and left alone."""
        file = switch.journals_of(town.root, PLACE)[0]
        write_json(file, content)
        with pytest.raises(StepFailed, match="is no journal"):
            switch.settle(town.root, PLACE)
        assert file.exists() and not journals.undo(file, Files())
        assert journals.undo(file.with_name("none"), Files())


class TestFiles:
    """What the system refuses."""

    def test_no_exchange(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names that cannot change places are told from an error."""
        one = tmp_path / "one"
        one.touch()
        with pytest.raises(FileNotFoundError):
            Files().exchange(one, tmp_path / "two")

        class Without:
            def __init__(self, name: object, use_errno: bool) -> None:
                self.renameat2 = lambda *args: ctypes.set_errno(errno.EINVAL) or -1

        monkeypatch.setattr(file_layer.ctypes, "CDLL", Without)
        assert not Files().exchange(one, one)
        synced: list[bool] = []
        monkeypatch.setattr(os, "sync", lambda: synced.append(True))
        Files().flush_all(tmp_path)
        assert synced
        monkeypatch.setattr(file_layer.ctypes, "CDLL", lambda *a, **k: object())
        assert not Files().exchange(one, one)

    def test_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk that cannot flush folders is passed over, one that fails is not."""

        def fail(code: int) -> None:
            def fsync(fd: int) -> NoReturn:
                raise OSError(code, os.strerror(code))

            monkeypatch.setattr(os, "fsync", fsync)

        fail(errno.EINVAL)
        Files().flush(tmp_path)
        fail(errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            Files().flush(tmp_path)
