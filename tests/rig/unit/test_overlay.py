# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Built files are put into the checkout, all or none, whatever stops it."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tools.rig.base.errors import StepFailed
from tools.rig.base.state import read_json, write_json
from tools.rig.builds import overlay

MEMBERS = ("pkg/_C.so", "moved/deep/x.so", "fresh/folder/y.so")
MOVED = {"moved/": "other-name/moved/"}
PLACES = ("pkg/_C.so", "other-name/moved/deep/x.so", "fresh/folder/y.so")
_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"})
_EVENTS |= {"os.chmod", "os.listdir", "os.scandir"}


class Scene:
    """A checkout with one older library, a wheel and a journal."""

    def __init__(self, tmp_path: Path) -> None:
        self.checkout = tmp_path / "check out"
        self.journal = tmp_path / "state" / "journal.json"
        self.wheel = tmp_path / "x-1-py3-none-any.whl"
        (self.checkout / "pkg").mkdir(parents=True)
        (self.checkout / "other-name").mkdir()
        (self.checkout / "pkg" / "_C.so").write_text("old")
        (self.checkout / "pkg" / "a.py").write_text("source")
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name in MEMBERS:
                info = zipfile.ZipInfo(name)
                info.external_attr = (0o755 if name == MEMBERS[0] else 0o644) << 16
                archive.writestr(info, f"new {name}" * 50)

    def place(self) -> list[Path]:
        """Put the libraries in place."""
        return overlay.place(self.wheel, MEMBERS, self.checkout, self.journal, MOVED)

    def tree(self) -> dict[str, str]:
        """Return everything below the checkout, folders too."""
        return {
            str(p.relative_to(self.checkout)): p.read_text() if p.is_file() else "/"
            for p in self.checkout.rglob("*")
        }


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a fresh scene."""
    return Scene(tmp_path)


@pytest.fixture
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the checkout as it looks when all is in place."""
    other = Scene(tmp_path_factory.mktemp("done"))
    other.place()
    return other.tree()


class TestPlace:
    """Without trouble."""

    def test_all_in_place(self, scene: Scene) -> None:
        """Files, modes, moved folders; no journal and no new names left."""
        made = scene.place()
        assert made == [scene.checkout / place for place in PLACES]
        for member, path in zip(MEMBERS, made):
            assert path.read_text() == f"new {member}" * 50
        assert made[0].stat().st_mode & 0o777 == 0o755
        assert made[1].stat().st_mode & 0o777 == 0o644
        assert not scene.journal.exists()
        assert not [p for p in scene.tree() if p.endswith(".rig-new")]

    def test_a_mapped_library_keeps_its_inode(self, scene: Scene) -> None:
        """Who has the old file open goes on reading it."""
        with (scene.checkout / "pkg/_C.so").open() as old:
            scene.place()
            assert old.read() == "old"

    def test_an_earlier_journal_is_settled_first(self, scene: Scene) -> None:
        """What an interrupted switch still owed is paid before the next one."""
        new = scene.checkout / ".late.so.rig-new"
        new.write_text("late")
        late = scene.checkout / "late.so"
        write_json(scene.journal, {"phase": "switch", "pairs": [[str(new), str(late)]]})
        scene.place()
        assert late.read_text() == "late" and not new.exists()

    @pytest.mark.parametrize("member", ["../evil.so", "pkg/../../evil.so"])
    def test_out_of_the_tree(self, scene: Scene, member: str) -> None:
        """A member that leads out of the checkout is refused."""
        with pytest.raises(StepFailed, match="leads out of its tree"):
            overlay.place(scene.wheel, [member], scene.checkout, scene.journal, {})
        assert not scene.journal.exists()


class TestFailure:
    """Before the first rename a failure leaves the checkout as it was."""

    def test_missing_member(self, scene: Scene) -> None:
        """A member that the wheel lacks undoes what was written before it."""
        before = scene.tree()
        with pytest.raises(StepFailed, match="cannot unpack"):
            overlay.place(
                scene.wheel, [*MEMBERS, "no.so"], scene.checkout, scene.journal, {}
            )
        assert scene.tree() == before and not scene.journal.exists()

    def test_damaged_member(self, scene: Scene) -> None:
        """A wheel that was damaged on the disk is noticed by its checksum."""
        data = scene.wheel.read_bytes()
        scene.wheel.write_bytes(data.replace(b"new fresh", b"bad fresh", 1))
        before = scene.tree()
        with pytest.raises(StepFailed, match="cannot unpack"):
            scene.place()
        assert scene.tree() == before

    def test_no_wheel(self, scene: Scene) -> None:
        """A file that is no wheel is named."""
        scene.wheel.write_text("text")
        with pytest.raises(StepFailed, match="cannot unpack"):
            scene.place()

    def test_a_file_where_a_folder_should_be(self, scene: Scene) -> None:
        """What cannot be written is a message about the checkout."""
        (scene.checkout / "fresh").write_text("in the way")
        before = scene.tree()
        with pytest.raises(StepFailed, match="cannot write") as caught:
            scene.place()
        assert scene.tree() == before
        assert caught.value.hint == f"ls -ld {shlex.quote(str(scene.checkout))}"

    def test_journal_cannot_be_written(self, scene: Scene) -> None:
        """Without a journal nothing begins."""
        scene.journal.parent.write_text("a file")
        before = scene.tree()
        with pytest.raises(StepFailed):
            scene.place()
        assert scene.tree() == before

    def test_ctrl_c(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """An interrupt while files are written undoes them at once."""

        def interrupt(*args: Any) -> NoReturn:
            raise KeyboardInterrupt

        before = scene.tree()
        monkeypatch.setattr(overlay.shutil, "copyfileobj", interrupt)
        with pytest.raises(KeyboardInterrupt):
            scene.place()
        assert scene.tree() == before and not scene.journal.exists()

    def test_rename_refused(self, scene: Scene, done: dict[str, str]) -> None:
        """A rename that fails is a message, and the next command finishes."""
        blocker = scene.checkout / "fresh/folder/y.so"
        blocker.mkdir(parents=True)
        (blocker / "inside").touch()
        with pytest.raises(StepFailed, match="cannot finish placing"):
            scene.place()
        assert read_json(scene.journal)["phase"] == "switch"
        (blocker / "inside").unlink()
        blocker.rmdir()
        assert overlay.settle(scene.journal) == "finished"
        assert scene.tree() == done


class TestSettle:
    """The journal of an earlier command."""

    def test_none(self, scene: Scene) -> None:
        """Nothing to do is said so."""
        assert overlay.settle(scene.journal) == ""

    def test_undo_leaves_what_is_not_ours(self, scene: Scene) -> None:
        """A folder that holds something by now is not removed."""
        folder = scene.checkout / "fresh"
        folder.mkdir()
        (folder / "theirs").touch()
        new = folder / ".y.so.rig-new"
        new.touch()
        state = {
            "phase": "staging",
            "pairs": [[str(new), str(folder / "y.so")]],
            "folders": [str(folder)],
        }
        write_json(scene.journal, state)
        assert overlay.settle(scene.journal) == "undone"
        assert (folder / "theirs").exists() and not new.exists()

    def test_undo_that_is_refused(self, scene: Scene) -> None:
        """What cannot be taken back is a message; the journal stays."""
        new = scene.checkout / ".x.rig-new"
        (new / "inside").mkdir(parents=True)
        write_json(scene.journal, {"phase": "staging", "pairs": [[str(new), "/x"]]})
        with pytest.raises(StepFailed, match="cannot take back"):
            overlay.settle(scene.journal)
        assert scene.journal.exists()

    @pytest.mark.parametrize("content", [{"a": 1}, [1], {"phase": "switch"}, "text"])
    def test_no_journal(self, scene: Scene, content: object) -> None:
        """A file of another kind is named and left alone."""
        write_json(scene.journal, content)
        with pytest.raises(StepFailed, match="is no journal"):
            overlay.settle(scene.journal)
        assert scene.journal.exists()

    def test_corrupt(self, scene: Scene) -> None:
        """So is one that was cut short."""
        scene.journal.parent.mkdir()
        scene.journal.write_text('{"phase": "swi')
        with pytest.raises(StepFailed, match="cannot read"):
            overlay.settle(scene.journal)


def in_child(work: Callable[[], object], stop: Callable[[], object]) -> int:
    """Run `work` in a copy of ourselves; `stop` is called at the wanted moment."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 3
    try:
        stop()
        work()
        code = 0
    except StepFailed:
        code = 4
    finally:
        os._exit(code)


def at(operation: int, action: Callable[[], object]) -> Callable[[], None]:
    """Return what makes `action` happen before that file operation."""

    def install() -> None:
        left = [operation]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in _EVENTS:
                left[0] -= 1
                if left[0] == 0:
                    action()

        sys.addaudithook(hook)

    return install


def _die() -> NoReturn:
    os._exit(9)


def _refuse() -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


@pytest.mark.allow_process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class TestEveryMoment:
    """Each file operation of the whole is the last one, in turn."""

    @pytest.fixture(autouse=True)
    def _no_flush(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Save time: only a power cut loses what a process has written."""
        monkeypatch.setattr(os, "fsync", lambda fd: None)

    def test_killed(self, tmp_path: Path, done: dict[str, str]) -> None:
        """Killed at any moment: settle() gives all of the old or all of the new."""
        seen = set()
        for operation in range(1, 200):
            (tmp_path / str(operation)).mkdir()
            scene = Scene(tmp_path / str(operation))
            before = scene.tree()
            code = in_child(scene.place, at(operation, _die))
            seen.add(overlay.settle(scene.journal))
            assert scene.tree() in (before, done), operation
            assert overlay.settle(scene.journal) == ""
            if code == 0:
                break
            assert code == 9
            scene.place()
            assert scene.tree() == done, operation
        else:
            pytest.fail("it never came to an end")
        assert seen == {"", "undone", "finished"}

    def test_killed_while_settling(self, tmp_path: Path, done: dict[str, str]) -> None:
        """A second kill, while the first one is made good, changes nothing."""
        for phase in ("staging", "switch"):
            for operation in range(1, 30):
                place = tmp_path / f"{phase}{operation}"
                place.mkdir()
                scene = Scene(place)
                before = scene.tree()
                _stage_by_hand(scene, phase)
                code = in_child(
                    lambda scene=scene: overlay.settle(scene.journal),
                    at(operation, _die),
                )
                overlay.settle(scene.journal)
                wanted = done if phase == "switch" else before
                assert scene.tree() == wanted, (phase, operation)
                if code == 0:
                    break
            else:
                pytest.fail("it never came to an end")

    def test_full_disk(self, tmp_path: Path, done: dict[str, str]) -> None:
        """Any operation that is refused: a message, and all old or all new."""
        for operation in range(1, 200):
            (tmp_path / str(operation)).mkdir()
            scene = Scene(tmp_path / str(operation))
            before = scene.tree()
            code = in_child(scene.place, at(operation, _refuse))
            assert code in (0, 4), operation
            if code == 4 and not scene.journal.exists():
                assert scene.tree() == before, operation
            overlay.settle(scene.journal)
            assert scene.tree() in (before, done), operation
            if operation > 20 and code == 0 and scene.tree() == done:
                break
        else:
            pytest.fail("it never came to an end")


def _stage_by_hand(scene: Scene, phase: str) -> None:
    """Bring the scene to where the journal says `phase` and all files are written."""
    pairs = []
    for member, place in zip(MEMBERS, PLACES):
        final = scene.checkout / place
        final.parent.mkdir(parents=True, exist_ok=True)
        new = final.with_name(f".{final.name}.rig-new")
        new.write_text(f"new {member}" * 50)
        pairs.append([str(new), str(final)])
    folders = ["other-name/moved/deep", "other-name/moved", "fresh/folder", "fresh"]
    made = [str(scene.checkout / f) for f in folders]
    write_json(scene.journal, {"phase": phase, "pairs": pairs, "folders": made})


class TestPutOnPath:
    """Folders beside the target's own finder."""

    def test_pth(self, tmp_path: Path) -> None:
        """One line a folder."""
        overlay.put_on_path(tmp_path, "proj", [Path("/a b"), Path("/c")])
        assert (tmp_path / "rig-overlay-proj.pth").read_text() == "/a b\n/c\n"

    def test_nothing(self, tmp_path: Path) -> None:
        """No folder, no file."""
        overlay.put_on_path(tmp_path, "proj", [])
        assert list(tmp_path.iterdir()) == []
