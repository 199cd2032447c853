# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whose a server's port is, from a fake machine and with strangers that answer."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc
from tests.rig.support.serve_desk import NO_CARDS, Desk, listens
from tests.rig.support.serve_desk import desk as desk
from tests.rig.support.server_record import a_record
from tools.rig.base.errors import CannotError, ExitCode, InUseError
from tools.rig.serve import life, listening, look, stop
from tools.rig.serve import record as records
from tools.rig.serve.listening import Listener, Who
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve_status import serve_status

pytestmark = pytest.mark.allow_process

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when uid inode\n"
LOOPBACK, ANY = "0100007F", "00000000"
MAPPED = "0000000000000000FFFF00000100007F"
ANY6, LOOPBACK6 = "0" * 32, "0" * 24 + "01000000"


def line(address: str, inode: int, *, port: int = 8000, uid: int = 1000) -> str:
    """Return a line of /proc/net/tcp for a socket that listens."""
    other = "0" * len(address)
    state = "0A 00000000:00000000 00:00000000 00000000"
    return f"   0: {address}:{port:04X} {other}:0000 {state} {uid:5} 0 {inode} 1 0\n"


class Machine:
    """A server with its API server and a worker, and a stranger (pid 300)."""

    def __init__(self, folder: Path) -> None:
        self.proc = FakeProc(folder / "proc")
        for pid in (200, 201, 300):
            self.proc.add(pid, uid=1000, cmdline=["/usr/bin/web"])
            (self.proc.root / str(pid) / "fd").mkdir(exist_ok=True)
        (self.proc.root / "net").mkdir()
        self.listen()
        self.pauses: list[float] = []

    def listen(self, *lines: str, six: str = "") -> None:
        """Say who listens."""
        net = self.proc.root / "net"
        (net / "tcp").write_text(HEAD + "".join(lines))
        (net / "tcp6").write_text(HEAD + six)

    def holds(self, pid: int, inode: int) -> None:
        """Give a process a socket."""
        folder = self.proc.root / str(pid) / "fd"
        (folder / str(len(os.listdir(folder)))).symlink_to(f"socket:[{inode}]")

    def look(self, **changes: object) -> Listener:
        """Look at the server."""
        record = a_record(members=[(201, 100)], **changes)
        return listening.look(record, self.proc.root, self.pauses.append)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which nobody listens."""
    return Machine(tmp_path)


def test_nobody(machine: Machine) -> None:
    """No socket, or one at another port or address, is nobody."""
    assert machine.look().who is Who.NOBODY
    machine.listen(line(LOOPBACK, 7, port=8001), line("0200007F", 8), six="short\n")
    assert machine.look() == Listener(Who.NOBODY)


@pytest.mark.parametrize("pid", [200, 201])
def test_its_own(machine: Machine, pid: int) -> None:
    """A socket that any of its processes holds is its own, and may hear the key."""
    machine.listen(line(LOOPBACK, 7))
    machine.holds(pid, 7)
    (machine.proc.root / str(pid) / "fd" / "x").symlink_to("/dev/null")
    assert machine.look() == Listener(Who.OWN, trusted=True)
    assert machine.pauses == []


def test_somebody_else(machine: Machine) -> None:
    """Another holder is named, and only after a second look."""
    machine.listen(line(LOOPBACK, 7))
    machine.holds(300, 7)
    found = machine.look()
    assert (found.who, found.trusted) == (Who.OTHERS, False)
    assert found.words == "port 8000 is held by PID 300 (web), not by this server"
    assert machine.pauses == [listening.SURE_S]
    machine.listen(line(LOOPBACK, 9, uid=0))
    assert "a process of root" in machine.look().words


def test_somebody_for_a_moment(machine: Machine) -> None:
    """Who only tries whether the port can be had is not taken for its owner."""
    machine.listen(line(LOOPBACK, 7))
    machine.holds(300, 7)
    record = a_record()
    gone = listening.look(record, machine.proc.root, lambda seconds: machine.listen())
    assert gone.who is Who.NOBODY


def test_the_address_itself_comes_first(machine: Machine) -> None:
    """A socket at the very address gets the request, before one for all addresses."""
    machine.holds(200, 7)
    machine.holds(300, 8)
    machine.listen(line(ANY, 7))
    assert machine.look().who is Who.OWN
    machine.listen(line(ANY, 7), line(LOOPBACK, 8))
    assert machine.look().who is Who.OTHERS
    machine.listen(line(ANY, 8), line(LOOPBACK, 7))
    assert machine.look().who is Who.OWN
    machine.listen(line(ANY, 7), six=line(ANY6, 8))
    assert machine.look().who is Who.OWN
    # one of several that share an address may answer
    machine.listen(line(LOOPBACK, 7), line(LOOPBACK, 8))
    assert machine.look().who is Who.OTHERS
    machine.listen(line(LOOPBACK, 7), six=line(MAPPED, 8))
    assert machine.look().who is Who.OTHERS


def test_addresses_of_the_new_kind(machine: Machine) -> None:
    """IPv6 addresses are read as the kernel prints them."""
    machine.holds(200, 7)
    machine.listen(six=line(ANY6, 7))
    assert machine.look().who is Who.OWN
    assert machine.look(host="::1").who is Who.OWN
    machine.listen(six=line(LOOPBACK6, 7))
    assert machine.look(host="::").who is Who.OWN
    assert machine.look().who is Who.NOBODY
    assert machine.look(host="localhost").who in (Who.OWN, Who.NOBODY)
    (machine.proc.root / "net" / "tcp6").unlink()
    machine.listen(line(LOOPBACK, 7))
    assert machine.look(host="localhost").who is Who.OWN


def test_it_cannot_be_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of another does not show is unknown, and gets no key."""
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    machine.listen(line(LOOPBACK, 7))
    real = os.listdir

    def closed(path: object) -> list[str]:
        if str(path).endswith("/200/fd"):
            raise PermissionError(13, "Permission denied")
        return real(str(path))

    monkeypatch.setattr(os, "listdir", closed)
    found = machine.look()
    assert (found.who, found.trusted) == (Who.UNKNOWN, False)
    assert "PID 200 does not show what it holds" in found.words
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    # who has the key already may be told it
    assert machine.look() == replace(found, trusted=True)
    machine.listen(line(LOOPBACK, 7, uid=1002))
    assert machine.look().who is Who.OTHERS
    for name in ("tcp", "tcp6"):
        (machine.proc.root / "net" / name).unlink()
    found = machine.look()
    assert (found.who, found.trusted) == (Who.UNKNOWN, False)
    assert "No such file" in found.words


def test_a_process_that_ended_meanwhile(machine: Machine) -> None:
    """Who is gone holds nothing."""
    machine.listen(line(LOOPBACK, 7))
    (machine.proc.root / "201" / "fd").rmdir()
    assert machine.look().who is Who.OTHERS


class Stranger(BaseHTTPRequestHandler):
    """Answers like a server, and keeps what it was told."""

    keys: list[str] = []

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Say that all is well."""
        self.answer(b"")

    def do_POST(self) -> None:
        """Say something."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(json.dumps({"choices": [{"text": "Paris"}]}).encode())

    def answer(self, body: bytes) -> None:
        """Send 200."""
        self.keys.append(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def stranger(port: int) -> Iterator[list[str]]:
    """Have somebody answer at a port; gives the keys that are told."""
    Stranger.keys = []
    with ThreadingHTTPServer(("127.0.0.1", port), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Stranger.keys
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return a file with a key."""
    file = tmp_path / "key"
    file.write_text("sesame-4711\n")
    return file


def test_a_stranger_is_not_ready(desk: Desk, key: Path) -> None:
    """Somebody who takes the port while it loads is no server, and hears no key."""
    plan = replace(desk.plan("silent"), api_key_file=key)
    told: list[str] = []

    def take() -> None:
        deadline = time.monotonic() + 20
        while records.load(desk.root, "one") is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with stranger(plan.port) as keys:
            while records.load(desk.root, "one") and time.monotonic() < deadline:
                time.sleep(0.05)
            told.extend(keys)

    thread = threading.Thread(target=take)
    thread.start()
    with pytest.raises(InUseError, match=f"held by PID {os.getpid()} ") as caught:
        desk.serve(plan)
    thread.join()
    assert caught.value.code == ExitCode.IN_USE
    assert f"--port {plan.port + 1}" in caught.value.hint
    assert told and not any(told)
    assert records.listing(desk.root) == []


def test_a_look_at_a_stranger(desk: Desk, key: Path) -> None:
    """A look says who has the port, whether or not it was ready once; and no key."""
    plan = replace(desk.plan("silent"), api_key_file=key)
    record, daemon = life.begin(desk.root, plan, ask=lambda: NO_CARDS)
    with daemon, stranger(plan.port) as keys:
        for ready in (None, time.time()):
            record.ready = ready
            seen = look.look(desk.root, record, gpus=lambda: NO_CARDS)
            assert seen.state is State.DEGRADED
            assert f"held by PID {os.getpid()} " in seen.reason
        told = len(keys)
        gone = stop.stop(desk.root, record, drain=30, ask=lambda: NO_CARDS)
        assert not gone.drained and len(keys) == told
    assert not any(keys)


def test_who_cannot_be_told_is_not_called_ready(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can tell who answers, neither start nor look say "ready"."""

    def untold(record: ServerRecord) -> Listener:
        return Listener(Who.UNKNOWN, "who listens cannot be told: closed")

    desk.serve(desk.plan())
    with monkeypatch.context() as patch:
        patch.setattr(listening, "look", untold)
        report = serve_status(desk.console, desk.root)
        with pytest.raises(CannotError, match="who listens cannot be told: closed"):
            desk.serve(desk.plan(name="two"))
    assert report.servers[0].state is State.UNKNOWN
    assert report.exit_code == ExitCode.FAILED
    assert "one is unknown: who listens cannot be told" in desk.said.getvalue()
    assert "address: 127.0.0.1" in desk.said.getvalue()
    assert [r.name for r in records.listing(desk.root)] == ["one"]


def test_the_real_machine(desk: Desk) -> None:
    """The kernel of this machine is understood: own, nobody, others."""
    record, daemon = life.begin(desk.root, desk.plan(), ask=lambda: NO_CARDS)
    with daemon:
        listens(record)
        assert listening.look(record) == Listener(Who.OWN, trusted=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        record.port = other.getsockname()[1]
        assert listening.look(record).who is Who.NOBODY
        other.listen()
        assert listening.look(record).who is Who.OTHERS
