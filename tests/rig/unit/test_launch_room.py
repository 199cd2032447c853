# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The launcher's line, and its turn with and without a service."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.admission import until
from tools.rig.base import launch_room
from tools.rig.base.launch_line import SOCKET, Line, dumps
from tools.rig.base.launch_room import Room


class Server:
    """Answers each line with what a function says; None hangs up."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], bytes | None] = lambda told: b""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(folder / SOCKET))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        """Serve one caller after the other."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock, sock.makefile("rb") as lines:
                for line in lines:
                    self.heard.append(json.loads(line))
                    said = self.answer(self.heard[-1])
                    if said is None:
                        break
                    if said:
                        sock.sendall(said)

    def close(self) -> None:
        """End."""
        # a shutdown wakes the accept, which a close does not
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="rig-t-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """Return a server."""
    made = Server(folder)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as short as can be measured."""
    monkeypatch.setattr(launch_room, "GONE_S", 0.2)
    monkeypatch.setattr(launch_room, "SILENT_S", 0.4)
    monkeypatch.setattr(launch_room, "_RETRY_S", 0.01)


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, -2.5, True, None, "x"], "b": {}},
        {'quote " \\ \n': "ö 漢 \U0001f600 \t"},
        {"raw": os.fsdecode(b"a\xff")},
        {"points": [(0.1, 5), (2.0, 1 << 40)]},
    ],
)
def test_json(value: object) -> None:
    """What is written by hand is what json would read."""
    assert json.loads(dumps(value)) == json.loads(json.dumps(value))
    assert dumps(value).isascii()


def test_go(server: Server, folder: Path) -> None:
    """A compile says what it is, waits, and goes when it is told to."""
    server.answer = lambda told: b"wait\nwa" + b"it\ngo\n"
    with closing(Room(str(folder), {"object": "x.o"})) as room:
        room.wait(5)
    assert server.heard == [{"op": "ask", "object": "x.o", "needs": 5, "kills": 0}]


def test_service_that_goes_away(server: Server, folder: Path) -> None:
    """A lost connection is made anew, and the question is asked again."""
    server.answer = lambda told: None if len(server.heard) < 3 else b"go\n"
    with closing(Room(str(folder), {})) as room:
        room.wait()
    assert [one["op"] for one in server.heard] == ["ask"] * 3


def test_what_runs_is_told_to_the_next(server: Server, folder: Path) -> None:
    """A new service hears since when a compile runs and what it holds."""
    room = Room(str(folder), {"object": "x.o"})
    room.use(12.5, 100, 77)
    room.use(12.5, 150, 77)
    room.ran_out(150)
    room.end(0, "hit")
    until(lambda: len(server.heard) == 4)
    first, second, third, last = server.heard
    assert (first["op"], first["started"], first["child"]) == ("ask", 12.5, 77)
    assert second == {"op": "use", "bytes": 150, "child": 77}
    assert third == {"op": "oom", "bytes": 150}
    assert last == {"op": "end", "code": 0, "cache": "hit"}


def test_nobody_there(folder: Path) -> None:
    """Without a service the lock is taken; who holds it keeps it to the end."""
    room = Room(str(folder), {})
    room.wait()
    with (folder / "alone.lock").open() as fh, pytest.raises(BlockingIOError):
        fcntl.flock(fh, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # a second try of the same compile keeps it
    room.wait(5)
    room.close()


def test_lock_is_taken(folder: Path) -> None:
    """A second one waits for the lock, or for a service that comes."""
    with (folder / "alone.lock").open("w") as fh:
        fcntl.flock(fh, fcntl.LOCK_EX)
        room = Room(str(folder), {})
        waits = threading.Thread(target=room.wait, daemon=True)
        waits.start()
        waits.join(0.6)
        assert waits.is_alive()
        server = Server(folder)
        server.answer = lambda told: b"go\n"
        waits.join(5)
        assert not waits.is_alive()
        room.close()
        server.close()


def test_service_that_hangs(server: Server, folder: Path) -> None:
    """One that says nothing is not waited for."""
    room = Room(str(folder), {})
    room.wait()
    assert (folder / "alone.lock").exists()
    room.close()


def test_no_folder(tmp_path: Path) -> None:
    """A folder that was cleaned away is made anew, for the lock in it."""
    with closing(Room(str(tmp_path / "none"), {})) as room:
        room.wait()
        assert (tmp_path / "none" / "alone.lock").exists()
        assert (tmp_path / "none").stat().st_mode & 0o077 == 0


def test_no_place_for_a_lock(tmp_path: Path) -> None:
    """Where there is no place for a lock, nobody is waited for."""
    with closing(Room(str(tmp_path / "none" / "deeper"), {})) as room:
        room.wait()
    assert not (tmp_path / "none").exists()


def test_line_without_a_service(folder: Path) -> None:
    """Nothing is said and nothing heard, and nothing fails."""
    line = Line(str(folder))
    assert not line.connect()
    assert (line.say(op="ask"), line.hear(0), line.fileno()) == (False, [], -1)
