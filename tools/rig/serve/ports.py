# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where servers listen: ports as people type them, and addresses as they are asked."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

from tools.rig.base.errors import UsageError
from tools.rig.serve.foreign import shown
from tools.rig.serve.problem import Problem

HIGHEST = 65535
USUAL = 8000
_TRIES = 50
_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def number(flag: str, word: str, usual: int = USUAL) -> int:
    """Return the port that was typed.

    Parameters
    ----------
    usual
        What it would be if nothing were typed.

    Raises
    ------
    UsageError
        When it is none.
    """
    # Python converts no text with some thousands of digits
    found = int(word) if word.isascii() and word.isdigit() and len(word) < 20 else 0
    if 0 < found <= HIGHEST:
        return found
    raise UsageError(
        f"--{flag} {shown(word)} is no port",
        usual=f"Ports are whole numbers from 1 to {HIGHEST}; 0 would be any of them.",
        hint=f"--{flag} {usual}",
    )


def look(
    host: str,
    port: int,
    listen: Callable[[str, int], None] = lambda host, port: _listen(host, port),
) -> Problem | None:
    """Return why a server could not listen there, and what to do; None: it could.

    Parameters
    ----------
    listen
        Listens for a moment, or raises OSError.
    """
    wrong = outside(port)
    if wrong is not None:
        return wrong
    try:
        listen(host, port)
    except OSError as exc:
        why, hint = _said(exc, host, port)
        taken = exc.errno == errno.EADDRINUSE
        if taken:
            other = _free(listen, host, port)
            hint = f"--port {other}, or ss -ltnp 'sport = :{port}'"
        return Problem(f"port {port} of {host} cannot be had: {why}", hint, busy=taken)
    return None


def outside(port: int) -> Problem | None:
    """Return what is wrong with a number that is no port; None: it is one."""
    if 0 < port <= HIGHEST:
        return None
    what = f"{port} is no port: they are whole numbers from 1 to {HIGHEST}"
    return Problem(what, f"--port {USUAL}")


def from_here(host: str) -> str:
    """Return the host to ask on this machine: who listens everywhere listens here."""
    return _OF_ALL.get(host, host)


def joined(host: str, port: int) -> str:
    """Return host and port as a URL has them: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def first_for_all(proc: Path = Path("/proc")) -> int:
    """Return the lowest port for which one need not be root (``ip(7)``)."""
    try:
        return int((proc / "sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return 1024


def _said(exc: OSError, host: str, port: int) -> tuple[str, str]:
    first = first_for_all()
    if exc.errno in (errno.EACCES, errno.EPERM) and port < first:
        why = f"ports below {first} are for root, and a server should not be"
        router = "invoke serve-router --kind nginx in front"
        return why, f"--port {max(first, USUAL)}, and {router}"
    if exc.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address", "ip address, then --host ADDRESS"
    if isinstance(exc, socket.gaierror):
        return f"{host} is no address: {exc.strerror}", "--host 127.0.0.1"
    return exc.strerror or str(exc), "--host 127.0.0.1"


def _free(listen: Callable[[str, int], None], host: str, port: int) -> int:
    """Return the next port that can be had; the usual one where none of some can."""
    for other in range(port + 1, min(port + _TRIES, HIGHEST + 1)):
        try:
            listen(host, other)
        except OSError:
            continue
        return other
    return USUAL


def _listen(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # as the server will do it: connections that linger are no obstacle
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind((host, port))
        trial.listen(1)
