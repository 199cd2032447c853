# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Lock, holder and lease in one process, with holders of our own making."""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, InUseError
from tools.rig.guard import lease
from tools.rig.guard.lease import Holder, Lease, dumped, holder, holder_at, parsed
from tools.rig.guard.lock import BuildLock, holder_of, holder_path, lock_path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give an empty checkout."""
    (tmp_path / "fork").mkdir()
    return tmp_path / "fork"


def ours() -> Holder:
    """Return this process as a holder."""
    return holder("build --token=abc")


def dead() -> Holder:
    """Return a holder of this boot whose process is gone."""
    return replace(ours(), start=1, token="dead")


def rebooted() -> Holder:
    """Return a holder of this host before it was started anew."""
    return replace(ours(), boot="another-boot", token="rebooted")


def foreign() -> Holder:
    """Return a holder on another host."""
    return replace(ours(), host="nas-user-2", boot="another-boot", token="foreign")


def contained() -> Holder:
    """Return a holder in another container of this machine."""
    return replace(dead(), host="c0ffee", space="pid:[1]", token="contained")


class TestHolder:
    """Who builds, and whether that is over."""

    def test_gone(self) -> None:
        """Only what this host can judge is gone."""
        assert not ours().gone
        assert dead().gone
        assert rebooted().gone
        assert not foreign().gone
        assert not contained().gone

    def test_no_boot_id(self) -> None:
        """Without a boot id nothing is concluded."""
        assert not replace(ours(), boot="").gone

    def test_other_machine_of_that_name(self) -> None:
        """Two machines of one name are told apart by their ids."""
        assert not replace(rebooted(), machine="another").gone

    def test_said(self) -> None:
        """People read pid, user, host, time and command."""
        said = str(foreign())
        assert said.startswith(f"PID {os.getpid()} of ")
        assert " on the host nas-user-2, since 20" in said
        assert said.endswith(": build --token=***")
        assert "on the host" not in str(ours())

    def test_round_trip(self) -> None:
        """What is written is read again."""
        once = ours()
        assert parsed(dumped(once)) == once

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x"}', "3"])
    def test_broken(self, text: str) -> None:
        """A file that is cut short or no holder is none."""
        assert parsed(text) is None

    def test_wrong_kind(self) -> None:
        """A holder whose numbers are none is none; a missing start is unknown."""
        data = json.loads(dumped(ours()))
        assert parsed(json.dumps({**data, "pid": "x"})) is None
        assert parsed(json.dumps({**data, "since": None})) is None
        found = parsed(json.dumps({**data, "start": None}))
        assert found is not None
        assert found.start is None

    def test_escapes(self) -> None:
        """What others wrote cannot move the cursor of a terminal."""
        found = parsed(dumped(replace(ours(), command="a\x1b[2Jb\nc")))
        assert found is not None
        assert found.command == "a [2Jb c"

    def test_no_machine_id(self, tmp_path: Path) -> None:
        """A machine without an id has an empty one."""
        assert lease._machine(tmp_path / "none") == ""


class TestLease:
    """The note beside the checkout."""

    def test_taken_and_dropped(self, checkout: Path) -> None:
        """It lies beside the checkout while we build, and not after."""
        note = Lease(checkout, ours())
        assert note.take() is None
        assert note.path == checkout.parent / ".fork.rig-lease"
        assert holder_at(checkout) == note.own
        assert [path.name for path in checkout.parent.iterdir()] != []
        note.drop()
        assert holder_at(checkout) is None
        assert {path.name for path in checkout.parent.iterdir()} == {"fork"}
        note.drop()

    @pytest.mark.parametrize("old", [dead(), rebooted()])
    @pytest.mark.parametrize("place", [0, 1])
    def test_stale(self, checkout: Path, old: Holder, place: int) -> None:
        """What a dead process or an earlier boot of this host left is replaced."""
        lease.places(checkout)[place].write_text(dumped(old))
        note = Lease(checkout, ours())
        assert holder_at(checkout) is None
        stale = note.take()
        assert stale is not None
        assert stale.token == old.token
        assert holder_at(checkout) == note.own

    def test_other_host(self, checkout: Path) -> None:
        """Another host's lease blocks with that host's name, and stays."""
        path = lease.places(checkout)[0]
        path.write_text(dumped(foreign()))
        with pytest.raises(
            InUseError, match="another host, nas-user-2, builds"
        ) as caught:
            Lease(checkout, ours()).take()
        assert caught.value.code == ExitCode.IN_USE
        assert str(path) in caught.value.hint
        found = holder_at(checkout)
        assert found is not None
        assert found.token == "foreign"

    def test_container(self, checkout: Path) -> None:
        """A build in another container of this machine is not judged from here."""
        lease.places(checkout)[0].write_text(dumped(contained()))
        with pytest.raises(InUseError, match="another process of this machine"):
            Lease(checkout, ours()).take()

    def test_broken(self, checkout: Path) -> None:
        """A lease that cannot be read blocks, is named, and stays."""
        path = lease.places(checkout)[0]
        path.write_text("{")
        with pytest.raises(InUseError, match="cannot read") as caught:
            Lease(checkout, ours()).take()
        assert caught.value.hint.startswith(f"rm {path} ")
        assert path.read_text() == "{"

    def test_replaced_meanwhile(self, checkout: Path) -> None:
        """A lease that is not ours any more is not removed."""
        note = Lease(checkout, ours())
        note.take()
        path = lease.places(checkout)[0]
        path.write_text(dumped(foreign()))
        note.drop()
        assert path.exists()

    def test_nowhere_to_write(self, tmp_path: Path) -> None:
        """Without a place for it there is no lease, and no error."""
        note = Lease(tmp_path / "none/fork", ours())
        assert note.take() is None
        assert note.path is None

    def test_lost_race(self, checkout: Path) -> None:
        """A lease that appears while we write ours wins."""
        path = lease.places(checkout)[0]

        class Late(Lease):
            def _cleared(self, where: Path) -> Holder | None:
                found = super()._cleared(where)
                if where != path and not path.exists():
                    path.write_text(dumped(foreign()))
                return found

        with pytest.raises(InUseError, match="nas-user-2"):
            Late(checkout, ours()).take()

    def test_without_hard_links(self, checkout: Path) -> None:
        """A file system without hard links gets a lease all the same."""

        def refuse(*paths: object) -> None:
            raise PermissionError

        path = checkout.parent / "lease"
        lease._create(path, "text", link=refuse)
        assert path.read_text() == "text"
        with pytest.raises(FileExistsError):
            lease._create(path, "other", link=refuse)
        assert {p.name for p in checkout.parent.iterdir()} == {"fork", "lease"}

    def test_unreadable(self, checkout: Path) -> None:
        """What cannot even be opened blocks: it may be somebody's lease."""
        lease.places(checkout)[0].mkdir()
        with pytest.raises(InUseError, match="cannot read"):
            Lease(checkout, ours()).take()


class TestLock:
    """The lock and the name of its holder."""

    def test_place(self, tmp_path: Path) -> None:
        """It lies beside the real environment, whatever link leads there."""
        (tmp_path / "link").symlink_to(tmp_path / "venvs/one")
        assert lock_path(tmp_path / "link") == tmp_path / "venvs/.one.rig-lock"
        assert holder_path(tmp_path / "link").name == ".one.rig-lock.json"

    def test_held(self, tmp_path: Path) -> None:
        """Who holds stands beside it, and is gone afterwards."""
        with BuildLock(tmp_path / "a/venv", None, "build --token=x"):
            found = holder_of(tmp_path / "a/venv")
            assert found is not None
            assert (found.pid, found.command) == (os.getpid(), "build --token=***")
        assert holder_of(tmp_path / "a/venv") is None

    def test_refused(self, tmp_path: Path) -> None:
        """A second build is refused by name; force has no say."""
        with (
            BuildLock(tmp_path / "venv", None, "first"),
            pytest.raises(InUseError) as caught,
            BuildLock(tmp_path / "venv", None, "second"),
        ):
            raise AssertionError
        assert caught.value.code == ExitCode.IN_USE
        assert caught.value.details[0].endswith("first")
        assert "does not override a lock" in caught.value.usual

    def test_nameless(self, tmp_path: Path) -> None:
        """A holder that left no name is still respected."""
        with (
            filelock.FileLock(lock_path(tmp_path / "venv")),
            pytest.raises(InUseError, match="another command holds") as caught,
            BuildLock(tmp_path / "venv", None, "second"),
        ):
            raise AssertionError
        assert caught.value.hint.startswith("fuser -v ")

    def test_waits(self, tmp_path: Path) -> None:
        """Waiting is announced once, and ends in a refusal."""
        out = io.StringIO()
        with (
            BuildLock(tmp_path / "venv", None, "first"),
            pytest.raises(InUseError),
            BuildLock(
                tmp_path / "venv", None, "second", console=Console(out), wait=0.2
            ),
        ):
            raise AssertionError
        assert out.getvalue().count("waiting up to 0.2 s for the build") == 1
        assert ": first\n" in out.getvalue()

    def test_waits_silently(self, tmp_path: Path) -> None:
        """Without a console nothing is announced."""
        with (
            BuildLock(tmp_path / "venv", None, "first"),
            pytest.raises(InUseError),
            BuildLock(tmp_path / "venv", None, "second", wait=0.1),
        ):
            raise AssertionError

    @pytest.mark.parametrize("old", [dead(), rebooted()])
    def test_taken_over(self, tmp_path: Path, old: Holder) -> None:
        """What a dead holder left is taken over and said."""
        holder_path(tmp_path / "venv").write_text(dumped(old))
        out = io.StringIO()
        with BuildLock(tmp_path / "venv", None, "next", console=Console(out)) as held:
            assert held.taken_over is not None
            assert held.taken_over.token == old.token
        assert "a command that died held the lock: PID" in out.getvalue()

    def test_stale_lease_is_told(self, tmp_path: Path, checkout: Path) -> None:
        """A lease left by a dead build counts as taken over as well."""
        lease.places(checkout)[0].write_text(dumped(dead()))
        with BuildLock(tmp_path / "venv", checkout, "next") as held:
            assert held.taken_over is not None

    def test_other_host(self, tmp_path: Path, checkout: Path) -> None:
        """A lease of another host refuses, and the lock is free again."""
        lease.places(checkout)[0].write_text(dumped(foreign()))
        with (
            pytest.raises(InUseError, match="another host"),
            BuildLock(tmp_path / "venv", checkout, "next"),
        ):
            raise AssertionError
        with BuildLock(tmp_path / "venv", None, "again"):
            assert holder_of(tmp_path / "venv") is not None

    def test_error_inside(self, tmp_path: Path, checkout: Path) -> None:
        """Whatever ends a build gives lock and lease back."""
        with (
            pytest.raises(KeyboardInterrupt),
            BuildLock(tmp_path / "venv", checkout, "build"),
        ):
            raise KeyboardInterrupt
        assert holder_at(checkout) is None
        assert holder_of(tmp_path / "venv") is None

    def test_no_place(self, tmp_path: Path) -> None:
        """Where no lock file can be made this machine cannot do it."""
        (tmp_path / "file").touch()
        with (
            pytest.raises(CannotError, match="cannot lock") as caught,
            BuildLock(tmp_path / "file/venv", None, "build"),
        ):
            raise AssertionError
        assert caught.value.hint.startswith("ls -ld ")

    @pytest.mark.parametrize(
        ("number", "flag", "hint"),
        [
            (errno.EROFS, 0, "findmnt --target "),
            (errno.EACCES, os.ST_RDONLY, "findmnt --target "),
            (errno.EACCES, 0, "ls -ld "),
            (errno.ENOSPC, 0, "df -"),
        ],
    )
    def test_what_shows_it(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        flag: int,
        hint: str,
    ) -> None:
        """A disk that is read-only or full is shown by other commands than a mode."""

        class Refuses(filelock.FileLock):
            def acquire(self, *args: Any, **how: Any) -> Any:
                raise OSError(number, os.strerror(number))

        real = os.statvfs(tmp_path)
        fields = (*real[:8], flag, *real[9:])
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
        with (
            pytest.raises(CannotError, match="cannot lock") as caught,
            BuildLock(tmp_path / "venv", None, "build", lock_type=Refuses),
        ):
            raise AssertionError
        assert caught.value.hint.startswith(hint)

    def test_name_cannot_be_written(self, tmp_path: Path) -> None:
        """A name that cannot be written does not stop a build."""
        holder_path(tmp_path / "venv").mkdir()
        with BuildLock(tmp_path / "venv", None, "build") as held:
            assert held.taken_over is None
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {".venv.rig-lock", ".venv.rig-lock.json"}

    def test_other_users(self, tmp_path: Path) -> None:
        """The lock file may be locked by every user, whatever our umask is."""
        old = os.umask(0o077)
        try:
            with BuildLock(tmp_path / "venv", None, "build"):
                assert lock_path(tmp_path / "venv").stat().st_mode & 0o777 == 0o666
        finally:
            os.umask(old)

    def test_fails_closed(self, tmp_path: Path) -> None:
        """A disk without locks is an error, not a lock that outlives its holder."""

        class Lockless(filelock.FileLock):  # type: ignore[misc,valid-type]  # an alias
            def _acquire(self) -> None:
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        with (
            pytest.raises(CannotError, match="not implemented"),
            BuildLock(tmp_path / "venv", None, "build", lock_type=Lockless),
        ):
            raise AssertionError
