# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How far the files that tell of servers are trusted: never further than they prove."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.server_record import a_record
from tools.rig.base import daemon, regular_file, shared_memory
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.serve import hangs, loading, look, record_file
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.steps.serve_logs import serve_logs


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """Return a root with the record of one server."""
    made = StateRoot(tmp_path / "root")
    log = os.fspath(records.folder(made) / "qwen.log")
    records.save(made, a_record(log=log))
    return made


def the_one(root: StateRoot) -> ServerRecord:
    """Return the record that must be there."""
    found = records.load(root, "qwen")
    assert found is not None
    return found


def test_odd_files_hold_up_nobody(root: StateRoot) -> None:
    """Pipes, devices, folders and huge files are one unknown server each."""
    folder = records.folder(root)
    os.mkfifo(folder / "pipe.json")
    os.mkfifo(folder / "qwen.seen")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "folder.json").mkdir()
    with (folder / "huge.json").open("wb") as fh:
        fh.truncate(1 << 40)
    (folder / "bytes.json").write_bytes(b"\xff\xfe{}")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "e\x1b[31m.json").write_text("{")
    start = time.monotonic()
    assert [r.name for r in records.listing(root)] == ["qwen"]
    bad = {one.name: one.problem for one in records.broken(root)}
    assert time.monotonic() - start < 5
    assert set(bad) == {"pipe", "zero", "folder", "huge", "bytes", "deep"}
    for name in ("pipe", "zero", "folder"):
        assert "not a regular file" in bad[name]
    assert "more than" in bad["huge"]
    # what was seen can be written in the place of what nobody can read
    record = the_one(root)
    record.sample = {"at": 5.0}
    records.save_seen(root, record)
    assert the_one(root).sample == {"at": 5.0}


def test_other_files_of_a_server(root: StateRoot) -> None:
    """Its end, its restarts and its log are read with the same distrust."""
    folder = records.folder(root)
    for end in ("end", "hangs", "log", "log.1"):
        os.mkfifo(folder / f"qwen.{end}")
    assert daemon.how_it_ended(the_one(root).end) is None
    assert hangs.load(root, "qwen") == []
    assert loading.Follower(folder / "qwen.log").lines() == []
    with pytest.raises(StepFailed, match="not a regular file"):
        serve_logs(root, "qwen")
    (folder / "qwen.hangs").unlink()
    (folder / "qwen.hangs").write_text('[5, "x", true, 1e999, [], 7.5]')
    assert hangs.load(root, "qwen") == [5.0, 7.5]


def test_pipe_in_place_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening a file may become a pipe: it is not waited for.

    A file may be as big as it is allowed to be, and not bigger.
    """
    file = tmp_path / "file"
    file.write_bytes(b"1234")
    assert regular_file.read(file, 4) == b"1234"
    with pytest.raises(OSError, match="more than 3 bytes"):
        regular_file.read(file, 3)
    seen = os.stat(file)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda path: seen)
    with pytest.raises(OSError, match="not a regular file"):
        regular_file.read(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("started", "NaN"),
        ("started", "Infinity"),
        ("started", "1e999"),
        ("started", "1" + "0" * 400),
        ("started", '"x"'),
        ("ready", "[]"),
        ("host", '"a b\\u001b[31m"'),
        ("host", '"a b"'),
        ("port", "true"),
        ("port", "70000"),
        ("port", "8000.5"),
        ("log", '""'),
        ("log", '"qwen.log"'),
        ("log", '"/a\\u0000b"'),
        ("cards", '["0"]'),
        ("roles", '{"api": "1"}'),
        ("members", "[[1]]"),
        ("members", '[[1, "2"]]'),
        ("members", "5"),
        ("shm", '{"/dev/shm/x": null}'),
        ("sample", '{"at": null}'),
        ("baseline", '{"0": []}'),
        ("baseline", '{"0": {"used": []}}'),
        ("baseline", '{"0": {"used": 1, "users": {"7": "x"}}}'),
        ("stopper", "[1]"),
        ("plan", "[]"),
        ("plan", '{"tensor": "x"}'),
        ("plan", '{"env": []}'),
        ("plan", '{"argv": [1]}'),
    ],
)
def test_wrong_inside(root: StateRoot, name: str, value: str) -> None:
    """A record with something that cannot be used in it is unknown, and no crash."""
    data = {**a_record(log="/x.log").to_json(), "name": "odd", name: "THIS"}
    text = json.dumps(data).replace('"THIS"', value)
    (records.folder(root) / "odd.json").write_text(text)
    assert [r.name for r in records.listing(root)] == ["qwen"]
    [bad] = records.broken(root)
    assert (bad.name, "cannot read" in bad.problem) == ("odd", True)


@pytest.mark.parametrize(
    "seen",
    [
        {"sample": {"at": None, "made": 1, "since": None}},
        {"members": [[1, 2, 3]]},
        {"shm": {"/dev/shm/x": "y"}},
        {"shm": None},
    ],
)
def test_wrong_in_what_was_seen(root: StateRoot, seen: dict[str, Any]) -> None:
    """What was seen and cannot be used is left out; the record stands for itself."""
    text = json.dumps({"token": "token-1", **seen})
    (records.folder(root) / "qwen.seen").write_text(text)
    assert the_one(root) == a_record(log=the_one(root).log)
    assert records.broken(root) == []


def test_whole_record_comes_back(root: StateRoot) -> None:
    """What rig itself writes fits, also in its rarer shapes."""
    before = {"0": {"used": None, "users": {"7": None}}, "1": {"used": 5, "users": {}}}
    record = the_one(root)
    record.stopper, record.baseline, record.ready = (5, 6), before, 7
    record.sample = {"at": 5, "made": 3.0, "since": 4.5}
    assert records.update(root, record, "stopper", "baseline")
    assert the_one(root).ready is None
    assert records.update(root, record, "ready", "sample")
    assert the_one(root) == record


def test_a_later_server_of_that_name(root: StateRoot) -> None:
    """Who knows an earlier server changes and removes nothing of a later one."""
    old, new = the_one(root), the_one(root)
    new.token = "token-2"
    records.save(root, new)
    records.save_seen(root, new)
    new.end.write_text('{"code": 0}')
    names = sorted(os.listdir(records.folder(root)))
    old.state_of_stop = records.STOPPING
    assert not records.update(root, old)
    old.sample = {"at": 1.0}
    records.save_seen(root, old)
    records.remove(root, old)
    assert the_one(root) == new
    assert sorted(os.listdir(records.folder(root))) == names
    records.remove(root, new)
    assert records.load(root, "qwen") is None
    # nor does it come back
    assert not records.update(root, new)
    records.save_seen(root, new)
    assert os.listdir(records.folder(root)) == [".rig-made"]


def test_only_a_keepers_file_is_removed(root: StateRoot) -> None:
    """The log may have any name: a file beside it that no keeper wrote stays."""
    folder = root.path / "precious"
    folder.mkdir()
    (folder / "a.end").write_text("my novel")
    record = the_one(root)
    record.log = os.fspath(folder / "a.log")
    records.update(root, record, "log")
    records.remove(root, record)
    assert records.load(root, "qwen") is None
    assert (folder / "a.end").read_text() == "my novel"
    records.save(root, record)
    (folder / "a.end").write_text('{"code": 0}')
    records.remove(root, record)
    assert os.listdir(folder) == []


def test_a_lock_that_is_never_given_back(
    root: StateRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was stopped with the lock in hand holds up the others for a moment only."""
    monkeypatch.setattr(record_file, "PATIENCE_S", 0.2)
    fd = os.open(records.folder(root), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        start = time.monotonic()
        assert records.update(root, the_one(root))
        assert 0.2 <= time.monotonic() - start < 5
    finally:
        os.close(fd)


def test_no_folder_and_no_locks(
    root: StateRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder, or without locks, things are done all the same."""
    assert not records.update(StateRoot(root.path / "none"), a_record())

    def none(fd: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    assert records.update(root, the_one(root))


def test_shared_memory_lies_in_its_folder(tmp_path: Path) -> None:
    """A record can name any file: only files of the folder itself are removed."""
    shm, proc = tmp_path / "shm", tmp_path / "proc"
    for folder in (shm, proc, shm / "below", tmp_path / "shm2"):
        folder.mkdir()
    outside = tmp_path / "precious"
    for file in (outside, shm / "below" / "x", shm / "psm", tmp_path / "shm2" / "y"):
        file.touch()
    (shm / "link").symlink_to(outside)
    os.mkfifo(shm / "pipe")
    words = [f"{shm}/../precious", f"{shm}/below/../../precious", f"{shm}/below/x"]
    words += [f"{shm}/link", f"{shm}/pipe", f"{shm}/", f"{shm}/..", f"{shm}/below"]
    words += [f"{shm}2/y", os.fspath(outside), "precious", f"{shm}//psm", f"{shm}/psm"]
    files = {}
    for word in words:
        real = shm / word
        files[word] = os.lstat(real).st_ino if os.path.lexists(real) else 1
    removed = shared_memory.remove(files, os.fspath(proc), os.fspath(shm))
    assert removed == [f"{shm}/psm"]
    assert outside.exists() and (shm / "below" / "x").exists()
    assert sorted(os.listdir(shm)) == ["below", "link", "pipe"]


def test_clock_that_was_set_back(root: StateRoot) -> None:
    """A server that starts in the future is up for no time at all."""
    record = the_one(root)
    record.started = time.time() + 3600
    record.boot_id, record.pid = processes_boot(), os.getpid()
    record.start_ticks = own_start()
    seen = look.look(root, record, deep=False)
    assert seen.uptime_s == 0.0


def processes_boot() -> str:
    """Return the id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def own_start() -> int:
    """Return when this process started, in clock ticks."""
    return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
