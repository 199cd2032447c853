# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The service's loop over real sockets, with a clock that is given to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.rig.base.launch_line import SOCKET
from tools.rig.builds.admission import protocol
from tools.rig.builds.admission.budget import Budget
from tools.rig.builds.admission.desk import Desk
from tools.rig.builds.admission.predictions import Predictions
from tools.rig.builds.admission.service import Service, _arguments, _budget, _listening

GIB = 1 << 30


class Office:
    """A service and its callers; ``now`` is its clock."""

    def __init__(self, folder: Path, quiet_until: float = 0.0) -> None:
        self.now = 100.0
        self.folder = folder
        budget = Budget(64 * GIB, 0, lambda: None, lambda: None)
        desk = Desk(budget, 1, lambda file: Predictions(), lambda pid: None)
        self.listener = _listening(folder / SOCKET)
        self.service = Service(desk, self.listener, lambda: self.now, quiet_until)
        self.callers: list[socket.socket] = []

    def call(self, *lines: object) -> socket.socket:
        """Connect and say something."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.folder / SOCKET))
        self.callers.append(sock)
        for line in lines:
            sock.sendall(json.dumps(line).encode() + b"\n")
        self.turn()
        return sock

    def turn(self) -> None:
        """Let the service do all that is to be done."""
        for _ in range(6):
            self.service.turn(0.0)

    def close(self) -> None:
        """Close everything."""
        for one in [*self.callers, self.listener]:
            one.close()
        self.turn_off()

    def turn_off(self) -> None:
        """Close what the service holds."""
        for line in list(self.service._callers):
            self.service._hang_up(line)
        self.service._select.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="rig-t-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def office(folder: Path) -> Iterator[Office]:
    """Return a service."""
    made = Office(folder)
    yield made
    made.close()


def heard(sock: socket.socket) -> bytes:
    """Return what came, without waiting."""
    sock.setblocking(False)
    try:
        return sock.recv(1 << 16)
    except BlockingIOError:
        return b""


ASK = {"op": "ask", "object": "x.o", "build": "b"}


def test_one_that_left(office: Office) -> None:
    """What somebody asked who is gone holds no room for ever."""
    gone = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    gone.connect(str(office.folder / SOCKET))
    gone.sendall(b'{"op": "status"}\n' + json.dumps(ASK).encode() + b"\n")
    gone.close()
    office.turn()
    assert office.service.idle
    assert heard(office.call(ASK)).endswith(b"go\n")


def test_one_after_the_other(office: Office) -> None:
    """The second goes when the first says that it is done, or hangs up."""
    first = office.call(ASK)
    assert heard(first).endswith(b"go\n")
    second, third = office.call(ASK), office.call(ASK)
    assert b"go" not in heard(second)
    first.sendall(b'{"op": "use", "bytes": 5}\n{"op": "end", "code": 0}\n')
    office.turn()
    assert heard(second).endswith(b"go\n")
    second.close()
    office.turn()
    assert heard(third).endswith(b"go\n")
    assert not office.service.idle
    third.close()
    office.turn()
    assert office.service.idle


def test_ran_out_asks_again(office: Office) -> None:
    """A compile under which memory ran out waits for its next turn."""
    first = office.call(ASK)
    assert b"go" in heard(first)
    first.sendall(b'{"op": "oom", "bytes": 5}\n')
    office.turn()
    assert b"go" in heard(first)
    assert office.service.desk.budget.lowered


def test_those_who_wait_hear_of_it(office: Office) -> None:
    """Once a second, by a clock that never goes back, whoever waits hears a word."""
    office.call(ASK)
    waits = office.call(ASK)
    heard(waits)
    office.now += 0.5
    office.turn()
    assert heard(waits) == b""
    office.now += 0.6
    office.turn()
    assert heard(waits) == b"wait\n"


def test_clock_that_is_set_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own clock is not asked."""
    monkeypatch.setattr("time.time", lambda: 0.0)
    first, second = office.call(ASK), office.call(ASK)
    first.close()
    office.now += 0.3
    office.turn()
    assert b"go" in heard(second)


def test_takeover_is_quiet(folder: Path) -> None:
    """Nothing starts before those that run had time to say so."""
    office = Office(folder, quiet_until=101.0)
    waits = office.call(ASK)
    assert b"go" not in heard(waits)
    runs = office.call({**ASK, "started": 90.0, "bytes": 5, "child": 7})
    office.now = 101.5
    office.turn()
    assert b"go" not in heard(waits)
    runs.sendall(b'{"op": "end"}\n')
    office.turn()
    assert b"go" in heard(waits)
    office.close()


def test_nonsense_is_ignored(office: Office) -> None:
    """What is no message changes nothing; what never ends is cut off."""
    sock = office.call("word", 5, {"op": "what"}, {})
    sock.sendall(b"\xff\n[[[\n")
    office.turn()
    assert office.service.idle
    sock.setblocking(False)
    for _ in range(10):
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            sock.send(b"x" * (1 << 16))
        office.turn()
    with pytest.raises(OSError):
        sock.send(b"x")


def test_status(office: Office) -> None:
    """Whoever asks gets one line of JSON."""
    office.call(ASK)
    sock = office.call({"op": "status"})
    found = json.loads(heard(sock))
    assert found["budget"] == 64 * GIB
    assert [one["object"] for one in found["running"]] == ["x.o"]


def test_signal_ends_it(office: Office) -> None:
    """The wake-up of a signal ends the loop."""
    woken, wake = os.pipe()
    office.service.wake_on(woken)
    os.write(wake, b"x")
    office.service.serve()
    assert office.service.stopped
    os.close(woken)
    os.close(wake)


def test_nobody_finds_it(office: Office) -> None:
    """A service whose socket was cleaned away makes room for the next one."""
    office.service._found = lambda: False
    office.now += 2
    office.turn()
    assert office.service.stopped


def test_socket_of_a_dead_service(folder: Path) -> None:
    """A name that is left over is taken over."""
    (folder / SOCKET).touch()
    with _listening(folder / SOCKET):
        assert protocol.status(folder, timeout=0.05) is None
    assert protocol.status(folder) is None


def test_arguments() -> None:
    """A given budget is taken at its word; without one it is measured."""
    given = _arguments(["--cores", "3", "--budget", "77"])
    assert (given.cores, _budget(given.budget).bytes) == (3, 77)
    assert _budget(None).start >= 0
