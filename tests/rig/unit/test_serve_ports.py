# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Ports: what is one, what can be had, and what to do where it cannot."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.support.vllm_cpu import free_port
from tools.rig.base.errors import UsageError
from tools.rig.serve import ports


def fails(code: int, *free: int) -> Callable[[str, int], None]:
    """Return what cannot listen, but at these ports."""

    def listen(host: str, port: int) -> None:
        if port not in free:
            raise OSError(code, os.strerror(code))

    return listen


@pytest.mark.parametrize("word", ["0", "65536", "70000", "-1", "8e3", "\u00b2", "http"])
def test_what_is_no_port(word: str) -> None:
    """What is no number from 1 to 65535 is said to be no port, and what is one."""
    with pytest.raises(UsageError, match=f"--port {word} is no port") as caught:
        ports.number("port", word)
    assert "from 1 to 65535" in caught.value.usual
    assert caught.value.hint == "--port 8000"
    with pytest.raises(UsageError) as of_router:
        ports.number("port", word, 8080)
    assert of_router.value.hint == "--port 8080"


def test_what_is_one() -> None:
    """The first and the last port are ports."""
    assert [ports.number("port", word) for word in ("1", "65535")] == [1, 65535]
    assert ports.outside(1) is None and ports.outside(65535) is None


@pytest.mark.parametrize("port", [0, 65536, -3])
def test_outside(port: int) -> None:
    """A number that is no port is told without asking the machine for it."""
    found = ports.look("127.0.0.1", port, listen=fails(errno.EIO))
    assert found is not None and f"{port} is no port" in found.what


def test_taken() -> None:
    """Where somebody listens, the next free port is named, and how to see who."""
    found = ports.look("::1", 8000, fails(errno.EADDRINUSE, 8003))
    assert found is not None
    assert found.what == "port 8000 of ::1 cannot be had: Address already in use"
    assert found.busy
    assert found.hint == "--port 8003, or ss -ltnp 'sport = :8000'"
    last = ports.look("::1", 65535, fails(errno.EADDRINUSE))
    assert last is not None and last.hint.startswith("--port 8000")


def test_below_1024(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is root's is named as such, with a router as the way to have it."""
    monkeypatch.setattr(ports, "first_for_all", lambda: 1024)
    found = ports.look("127.0.0.1", 80, fails(errno.EACCES))
    assert found is not None and "ports below 1024 are for root" in found.what
    assert not found.busy
    assert "--port 8000" in found.hint and "serve-router" in found.hint
    other = ports.look("127.0.0.1", 8000, fails(errno.EACCES))
    assert other is not None and "Permission denied" in other.what


def test_first_for_all(tmp_path: Path) -> None:
    """The kernel says from which port on nobody need be root."""
    file = tmp_path / "sys/net/ipv4/ip_unprivileged_port_start"
    assert ports.first_for_all(tmp_path) == 1024
    file.parent.mkdir(parents=True)
    file.write_text("80\n")
    assert ports.first_for_all(tmp_path) == 80


def test_addresses_that_are_not_here() -> None:
    """An address of another machine, and what is none, are told apart from ports."""
    found = ports.look("192.0.2.7", 8000, fails(errno.EADDRNOTAVAIL))
    assert found is not None and "no such address" in found.what

    def unknown(host: str, port: int) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    found = ports.look("no such host", 8000, unknown)
    assert found is not None and "no such host is no address" in found.what


def test_for_real() -> None:
    """A free port can be had, and one at which somebody listens cannot."""
    assert ports.look("127.0.0.1", free_port()) is None
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        found = ports.look("127.0.0.1", other.getsockname()[1])
    assert found is not None and "Address already in use" in found.what


def test_addresses_as_they_are_asked() -> None:
    """Who listens everywhere is asked here, and IPv6 stands in brackets."""
    assert [*map(ports.from_here, ("", "0.0.0.0", "::", "10.0.0.7"))] == [
        *("127.0.0.1", "127.0.0.1", "::1", "10.0.0.7")
    ]
    assert ports.joined("::1", 8000) == "[::1]:8000"
    assert ports.joined("localhost", 80) == "localhost:80"
