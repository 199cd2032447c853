# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The keeper of a server: its log, what is left behind, and how it ended."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.rig.support.alive import survivors
from tests.rig.support.fakeproc import FakeProc, Mapping_
from tools.rig.base import daemon, keeper, shared_memory
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.keeper_log import Lines, Log, secrets_of


def test_log_rotates(tmp_path: Path) -> None:
    """A full log is put aside, and only so many are kept."""
    file = tmp_path / "a.log"
    log = Log(os.fspath(file), 10, 2)
    for word in (b"11111111\n", b"22222222\n", b"33333333\n", b"44444444\n"):
        log.write(word)
    log.write(b"")
    assert file.read_bytes() == b"44444444\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"33333333\n"
    assert (tmp_path / "a.log.2").read_bytes() == b"22222222\n"
    assert len(list(tmp_path.iterdir())) == 3


def test_each_start_has_a_log_of_its_own(tmp_path: Path) -> None:
    """The log of the run before is put aside at the start."""
    file = tmp_path / "a.log"
    Log(os.fspath(file), 100, 3).write(b"first\n")
    Log(os.fspath(file), 100, 3).write(b"second\n")
    assert file.read_bytes() == b"second\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"first\n"


def test_what_the_disk_does_not_take(tmp_path: Path) -> None:
    """A disk that is full costs lines, which are counted, and stops nobody."""
    file = tmp_path / "a.log"
    log = Log(os.fspath(file), 100, 3)
    good, log.fd = log.fd, os.open("/dev/full", os.O_WRONLY)
    log.write(b"12345\n")
    assert log.lost == 6
    os.close(log.fd)
    log.fd = good
    log.write(b"more\n")
    assert file.read_bytes() == b"[6 bytes of output were lost]\nmore\n"
    assert log.lost == 0


def test_lines_without_secrets() -> None:
    """Secrets are masked although they come in pieces; bars end with a return."""
    lines = Lines({b"sesame", b"sesame-open"})
    assert lines.add(b"key ses") == b""
    assert lines.add(b"ame-open\n50%\rhal") == b"key ***\n50%\r"
    assert lines.flush() == b"hal"
    assert lines.flush() == b""
    assert len(lines.add(b"x" * 70000)) == 70000


def test_which_are_secrets() -> None:
    """Names say so, and the option for a key; short words are none."""
    env = {
        "VLLM_API_KEY": "from-env",
        "HF_TOKEN": "hf_long",
        "X_KEY": "ab",
        "A": "bbbbbb",
    }
    argv = ["vllm", "--api-key", "on-line", "--api_key=with-sign", "--api-key"]
    found = secrets_of(env, argv)
    assert found == {b"from-env", b"hf_long", b"on-line", b"with-sign"}


def test_shared_memory_by_inode(tmp_path: Path) -> None:
    """Files are found by what is mapped, under whatever name; only ours and idle go."""
    shm = tmp_path / "shm"
    shm.mkdir()
    files = {}
    for name in ("psm_1", "sem.mp-2", "psm_3", "psm_4"):
        (shm / name).touch()
        files[name] = os.stat(shm / name).st_ino
    proc = FakeProc(tmp_path / "proc")
    proc.add(
        70,
        maps=[
            Mapping_(f"{shm}/psm_1", files["psm_1"]),
            Mapping_(f"{shm}/sem.xyz (deleted)", files["sem.mp-2"]),
            Mapping_("/usr/lib/x.so", files["psm_4"]),
        ],
    )
    proc.add(71, maps=[Mapping_(f"{shm}/psm_3", files["psm_3"])])
    where = (os.fspath(proc.root), os.fspath(shm))
    held = shared_memory.mapped([70, 99], *where)
    assert set(held) == {f"{shm}/psm_1", f"{shm}/sem.mp-2"}
    assert shared_memory.mapped([99], *where) == {}
    wanted = {**held, f"{shm}/psm_3": files["psm_3"], f"{shm}/gone": 1}
    wanted[f"{shm}/psm_4"] = 1
    assert shared_memory.remove(wanted, *where) == []
    (proc.root / "70" / "maps").unlink()
    (proc.root / "70" / "maps").touch()
    removed = shared_memory.remove(wanted, *where)
    assert removed == [f"{shm}/psm_1", f"{shm}/sem.mp-2"]
    assert sorted(os.listdir(shm)) == ["psm_3", "psm_4"]
    assert shared_memory.remove({}, *where) == []


def order(folder: Path, tether: int = -1) -> dict[str, object]:
    """Return a keeper's order."""
    return {
        "log": os.fspath(folder / "a.log"),
        "end": os.fspath(folder / "a.end"),
        "most": 1000,
        "kept": 2,
        "tether": tether,
        "grace": 0.3,
    }


@pytest.fixture
def kept_signals() -> object:
    """Put back what a keeper in this process sets."""
    names = (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGCHLD,
        signal.SIGHUP,
        signal.SIGPIPE,
    )
    old = {sig: signal.getsignal(sig) for sig in names}
    yield None
    signal.set_wakeup_fd(-1)
    # orphans of later tests are not ours
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    for sig, handler in old.items():
        signal.signal(sig, handler)


class Alone(keeper.Keeper):
    """A keeper in our own process, whose session is not only its own."""

    def start(self) -> int:
        """Start the program."""
        self.mine = super().start()
        return self.mine

    def _others(self) -> list[int]:
        self._reap()
        return survivors([self.mine])  # type: ignore[return-value]


@pytest.mark.allow_process
@pytest.mark.usefixtures("kept_signals")
def test_keeper_from_start_to_end(tmp_path: Path) -> None:
    """Output goes to the log; the way it ended is written down."""
    made = Alone(order(tmp_path), ["/bin/sh", "-c", "echo one; printf two; exit 7"])
    made.start()
    assert made.keep() == 7
    assert (tmp_path / "a.log").read_text() == "one\ntwo"
    end = daemon.how_it_ended(tmp_path / "a.end")
    assert end is not None
    assert (end["code"], end["asked"], end["orphans"]) == (7, False, [])


@pytest.mark.allow_process
@pytest.mark.usefixtures("kept_signals")
def test_keeper_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that the disk does not take leaves no empty file behind."""

    def full(data: object, file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeper.json, "dump", full)
    made = Alone(order(tmp_path), ["/bin/true"])
    made.start()
    assert made.keep() == 0
    assert [file.name for file in tmp_path.iterdir()] == ["a.log"]
    assert daemon.how_it_ended(tmp_path / "a.end") is None


@pytest.mark.allow_process
@pytest.mark.usefixtures("kept_signals")
def test_keeper_is_told_to_stop(tmp_path: Path) -> None:
    """A signal is passed on, and being told is written down."""
    made = Alone(order(tmp_path), ["/bin/sleep", "60"])
    made.start()
    os.kill(os.getpid(), signal.SIGTERM)
    assert made.keep() == 128 + signal.SIGTERM
    end = daemon.how_it_ended(tmp_path / "a.end")
    assert end is not None
    assert (end["code"], end["asked"]) == (-signal.SIGTERM, True)


@pytest.mark.allow_process
@pytest.mark.usefixtures("kept_signals")
def test_tether_ends_and_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the tether stops even the deaf; a letter in it lets it live."""
    monkeypatch.setattr(keeper, "GRACE_S", 0.3)
    deaf = "trap '' TERM; echo up; sleep 60 & wait; wait; sleep 60"
    read_end, write_end = os.pipe()
    made = Alone(order(tmp_path, read_end), ["/bin/sh", "-c", deaf])
    made.start()
    deadline = time.monotonic() + 5
    while "up" not in (tmp_path / "a.log").read_text():
        made._turn(0.1)
        assert time.monotonic() < deadline
    os.close(write_end)
    assert made.keep() == 128 + signal.SIGKILL
    read_end, write_end = os.pipe()
    made = Alone(order(tmp_path, read_end), ["/bin/sh", "-c", "sleep 0.3; exit 0"])
    made.start()
    os.write(write_end, b"k")
    assert made.keep() == 0
    os.close(write_end)
    end = daemon.how_it_ended(tmp_path / "a.end")
    assert end is not None and end["asked"] is False


@pytest.mark.allow_process
def test_daemon(tmp_path: Path) -> None:
    """It leads a session of its own, has us as no parent, and is let live."""
    log, end = tmp_path / "a.log", tmp_path / "a.end"
    code = "import os; print(os.getsid(0), os.environ['A'], flush=True)"
    with daemon.start(
        [sys.executable, "-S", "-c", code + "; import time; time.sleep(60)"],
        env={"A": "b"},
        cwd=Path("/"),
        log=log,
        end=end,
    ) as made:
        made.release()
        made.release()
    deadline = time.monotonic() + 5
    while not log.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert log.read_text() == f"{made.session} b\n"
    assert survivors([made.pid, made.session]) == [made.pid, made.session]
    assert daemon.how_it_ended(end) is None
    os.kill(made.session, signal.SIGTERM)
    assert survivors([made.pid, made.session], 5) == []
    assert (daemon.how_it_ended(end) or {})["code"] == -signal.SIGTERM


@pytest.mark.allow_process
def test_daemon_that_cannot_start(tmp_path: Path) -> None:
    """Each reason is an error of ours, and no log is left open."""
    files = {"log": tmp_path / "a.log", "end": tmp_path / "a.end"}
    with pytest.raises(CannotError, match="no such file"):
        daemon.start(["/no/such"], env={}, cwd=Path("/"), **files)
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(CannotError, match="cannot start"):
        daemon.start([tmp_path / "text"], env={}, cwd=Path("/"), **files)
    (tmp_path / "file").touch()
    with pytest.raises(StepFailed, match="cannot write"):
        daemon.start(
            ["/bin/true"],
            env={},
            cwd=Path("/"),
            log=tmp_path / "file" / "a.log",
            end=tmp_path / "a.end",
        )


def test_no_end_yet(tmp_path: Path) -> None:
    """A file that is not there, or is none, says nothing."""
    assert daemon.how_it_ended(tmp_path / "x") is None
    (tmp_path / "x").write_text("[1]")
    assert daemon.how_it_ended(tmp_path / "x") is None
