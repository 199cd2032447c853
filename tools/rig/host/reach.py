# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a server answers at all: its name resolves and it takes a connection."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from urllib.parse import urlsplit

REACH_S = 3.0
"""Seconds for a name and a connection; behind a firewall that drops, nothing comes."""

_PORTS = {"http": 80, "https": 443}


def problem(url: str, *, timeout: float = REACH_S) -> str:
    """Connect to the server of `url`, send nothing, and say what is wrong.

    Parameters
    ----------
    url
        An ``http`` or ``https`` address; any other kind needs no connection.
    timeout
        Seconds for all of it.

    Returns
    -------
    str
        Empty when it answers; otherwise the host and the system's own words.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as exc:
        return f"no address: {exc}"
    if not host or port is None:
        return ""
    answer: queue.SimpleQueue[str] = queue.SimpleQueue()

    def connect() -> None:
        try:
            with contextlib.closing(socket.create_connection((host, port), timeout)):
                answer.put("")
        except OSError as exc:
            answer.put(exc.strerror or str(exc))

    # looking a name up knows no time limit of its own, so it may be left behind
    threading.Thread(target=connect, daemon=True).start()
    try:
        why = answer.get(timeout=timeout)
    except queue.Empty:
        why = f"no answer within {timeout:.0f} s"
    return f"{host}: {why}" if why else ""
