# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who listens at a server's port: itself, somebody else, or nobody yet.

A server takes its port some time after it was started, and anybody may have it by then.
Whoever has it would be asked, would be told the server's key, and might well answer.
The kernel knows better: ``/proc/net/tcp`` and ``tcp6`` hold the inode of each socket
that listens, and ``/proc/PID/fd`` who holds it (proc(5)).
"""

from __future__ import annotations

import contextlib
import enum
import ipaddress
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rig.host import processes
from tools.rig.serve import members
from tools.rig.serve.record import ServerRecord

SURE_S = 0.4
"""Seconds between the two looks that both must find somebody else: whoever tries
whether a port can be had holds it for a moment."""

_LISTENS = "0A"
_WORD = 8

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Who(enum.Enum):
    """Whose the port is."""

    OWN = "own"
    OTHERS = "others"
    NOBODY = "nobody"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Listener:
    """Who would answer at a server's address.

    Attributes
    ----------
    words
        What to say of it, where it is somebody else or unknown.
    trusted
        Whether the server's key may be told: it is the server itself, or at least a
        process of the same user, who has that key anyway.
    """

    who: Who
    words: str = ""
    trusted: bool = False


@dataclass(frozen=True)
class Socket:
    """A socket that listens: where, whose (a user id), and its inode."""

    address: Address
    uid: int
    inode: int


def look(
    record: ServerRecord,
    proc: Path = processes.PROC,
    pause: Callable[[float], None] = time.sleep,
) -> Listener:
    """Return who listens at a server's address and port.

    Parameters
    ----------
    pause
        Waits between the two looks that make sure of somebody else.
    """
    found = _once(record, proc)
    if found.who is Who.OTHERS:
        pause(SURE_S)
        found = _once(record, proc)
    return found


def sockets(port: int, proc: Path = processes.PROC) -> list[Socket]:
    """Return the sockets of this machine that listen at a port.

    Raises
    ------
    OSError
        When the kernel does not tell.
    """
    found = []
    missing: list[OSError] = []
    for name in ("tcp", "tcp6"):
        try:
            text = processes.read(f"{proc}/net/{name}").decode("ascii", "replace")
        except FileNotFoundError as exc:
            # a machine without IPv6 has no such file
            missing.append(exc)
            continue
        end = f":{port:04X}"
        for line in text.splitlines():
            words = line.split()
            # most lines are connections; they are told apart as fast as possible
            if len(words) > 9 and words[3] == _LISTENS and words[1].endswith(end):
                where = _address(words[1].partition(":")[0])
                found.append(Socket(where, int(words[7]), int(words[9])))
    if len(missing) > 1:
        raise missing[0]
    return found


def _once(record: ServerRecord, proc: Path) -> Listener:
    try:
        asked = _asked(sockets(record.port, proc), _addresses(record))
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        return _unknown(record, why, trusted=False)
    if not asked:
        return Listener(Who.NOBODY)
    own, closed = _held((m.pid for m in members.of(record, proc)), proc)
    strange = [one for one in asked if one.inode not in own]
    if not strange:
        return Listener(Who.OWN, trusted=True)
    users = {one.uid for one in strange}
    if closed and users == {record.uid}:
        # from within another namespace not even one's own processes show what they hold
        trusted = os.geteuid() == record.uid
        return _unknown(record, f"PID {closed[0]} does not show what it holds", trusted)
    holder = _holder(strange[0], proc)
    return Listener(
        Who.OTHERS, f"port {record.port} is held by {holder}, not by this server"
    )


def _unknown(record: ServerRecord, why: str, trusted: bool) -> Listener:
    words = f"who listens at port {record.port} cannot be told: {why}"
    return Listener(Who.UNKNOWN, words, trusted)


def _addresses(record: ServerRecord) -> list[Address]:
    """Return the addresses that are tried when the server is asked."""
    with contextlib.suppress(ValueError):
        return [ipaddress.ip_address(record.address.partition("%")[0])]
    found = socket.getaddrinfo(record.address, record.port, type=socket.SOCK_STREAM)
    names = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [ipaddress.ip_address(name.partition("%")[0]) for name in names]


def _asked(there: Sequence[Socket], addresses: Iterable[Address]) -> list[Socket]:
    """Return the sockets that get a connection to one of these addresses.

    The kernel prefers the one that was bound to the address itself, and shares among
    those that are alike: any of them may answer.
    """
    found: list[Socket] = []
    for address in addresses:
        every: list[list[Address]] = [[address], [ipaddress.IPv6Address("::")]]
        if isinstance(address, ipaddress.IPv4Address):
            mapped = ipaddress.IPv6Address(f"::ffff:{address}")
            zero = ipaddress.IPv4Address("0.0.0.0")
            every = [[address, mapped], [zero], [ipaddress.IPv6Address("::")]]
        for alike in every:
            answering = [one for one in there if one.address in alike]
            if answering:
                found += answering
                break
    return found


def _held(pids: Iterable[int], proc: Path) -> tuple[set[int], list[int]]:
    """Return the inodes of the sockets that processes hold, and who does not tell."""
    inodes: set[int] = set()
    closed = []
    for pid in pids:
        folder = f"{proc}/{pid}/fd"
        try:
            names = os.listdir(folder)
            links = [processes.link(f"{folder}/{name}") for name in names]
        except PermissionError:
            closed.append(pid)
            continue
        except OSError:
            # it ended meanwhile
            continue
        for link in links:
            if link is not None and link.startswith("socket:["):
                inodes.add(int(link[8:-1]))
    return inodes, closed


def _holder(one: Socket, proc: Path) -> str:
    for pid in processes.pids(proc):
        if one.inode in _held([pid], proc)[0]:
            return f"PID {pid} ({processes.name(pid, proc)})"
    return f"a process of {processes.user_name(one.uid)}"


def _address(digits: str) -> Address:
    """Return an address as the kernel prints it: words in the order of the machine."""
    data = b"".join(
        bytes.fromhex(digits[at : at + _WORD])[
            :: -1 if sys.byteorder == "little" else 1
        ]
        for at in range(0, len(digits), _WORD)
    )
    return ipaddress.ip_address(data)
