# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One sccache server for one build: it has its own socket and ends with the build.

sccache would start a server by itself, which outlives the build and serves whoever
comes next with what the first one was told. A server of the user's own is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.rig.base import near, scratch
from tools.rig.base.run import Result, run, stop_tree, stream
from tools.rig.builds.compile_cache import SHARED, CompileCache

START_S = 20.0
"""Seconds for a server to answer; it looks first whether it can reach its storage."""

STOP_S = 15.0
"""Seconds for a server to end; it gives its clients ten."""

_PORTS = {"redis": 6379, "rediss": 6379, "http": 80, "https": 443}
_BY_ADDRESS = (
    *("SCCACHE_REDIS_ENDPOINT", "SCCACHE_REDIS", "SCCACHE_MEMCACHED_ENDPOINT"),
    *("SCCACHE_MEMCACHED", "SCCACHE_ENDPOINT", "SCCACHE_WEBDAV_ENDPOINT"),
)


@dataclass
class Served:
    """A server that runs: variables for compiles, lines to say, and what it counted."""

    add: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)


def address(env: Mapping[str, str]) -> str:
    """Return ``HOST:PORT`` of the user's shared cache, or nothing.

    What is reached through a proxy, and storage that is named by its bucket alone,
    cannot be asked this way.
    """
    for name in _BY_ADDRESS:
        given = env.get(name, "")
        if not given:
            continue
        try:
            parts = urlsplit(given if "//" in given else f"tcp://{given}")
            port = parts.port or _PORTS.get(parts.scheme, 11211)
        except ValueError:
            return ""
        by_proxy = parts.scheme.startswith("http") and any(
            env.get(proxy)
            for scheme in ("http", "https", "all")
            for proxy in (f"{scheme}_proxy", f"{scheme}_proxy".upper())
        )
        host = parts.hostname or ""
        return f"{host}:{port}" if host and not by_proxy else ""
    return ""


@contextlib.contextmanager
def serving(
    chosen: CompileCache,
    env: Mapping[str, str],
    log: Path,
    *,
    nice: int = 0,
    start: Callable[..., Result] = stream,
    start_s: float = START_S,
) -> Iterator[Served]:
    """Run a server while a build compiles; for other caches nothing is run.

    A shared cache that cannot be reached is left out, and the build goes on with a
    cache of this machine alone.

    Parameters
    ----------
    chosen
        The build's cache.
    env
        The build's environment, the cache's variables included.
    log
        Gets what the server says.
    nice
        Added to the niceness: compiles are children of the server.
    start
        Starts it.
    start_s
        Seconds for it to answer.
    """
    if chosen.name != "sccache":
        yield Served()
        return
    # a socket's path holds a hundred characters, and only we may connect
    with scratch.folder("sccache", _short()) as folder:
        yield from _serve(chosen, env, log, folder / "s", nice, start, start_s)


def _short() -> str | None:
    return "/tmp" if os.path.isdir("/tmp") else None


def _serve(
    chosen: CompileCache,
    env: Mapping[str, str],
    log: Path,
    socket: Path,
    nice: int,
    start: Callable[..., Result],
    start_s: float,
) -> Iterator[Served]:
    shared = address(env) if chosen.shared else ""
    notes = []
    reachable = not shared or near.reached(shared)
    if not reachable:
        notes.append(f"the shared compile cache at {shared} does not answer")
    asked = [env] if chosen.shared and reachable else []
    # the last resort is a cache of this machine
    asked.append({k: v for k, v in env.items() if not _is_shared(k)})
    for theirs in asked:
        server = _Server(chosen.program, theirs, log, socket, nice, start)
        if server.wait(start_s):
            break
        server.stop()
        notes.append(f"sccache did not start: {server.said()}")
    else:
        yield Served({"RIG_CACHE": ""}, notes)
        return
    add = {"RIG_CACHE_SOCKET": str(socket), "SCCACHE_SERVER_UDS": str(socket)}
    if theirs is env and shared:
        add["RIG_CACHE_SHARED"] = shared
    if chosen.shared and theirs is not env:
        add["RIG_CACHE_DIR"] = env.get("SCCACHE_DIR", "")
    served = Served(add, notes)
    try:
        yield served
    finally:
        if (socket.parent / near.AWAY).exists():
            notes.append(f"the shared compile cache at {shared} went away")
        served.counts = server.counts()
        server.stop()


def _is_shared(name: str) -> bool:
    return name in SHARED or name == "SCCACHE_MULTILEVEL_CHAIN"


class _Server:
    """A server in the foreground of a thread of ours, so that it cannot outlive us."""

    def __init__(
        self,
        program: str,
        env: Mapping[str, str],
        log: Path,
        socket: Path,
        nice: int,
        start: Callable[..., Result],
    ) -> None:
        self.env = {**env, "SCCACHE_SERVER_UDS": str(socket)}
        self.program, self.socket = program, socket
        self.lines: list[str] = []
        self.session = 0
        more = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}

        def work() -> None:
            with contextlib.suppress(Exception):
                # whatever it is that hinders it, the build can do without
                start(
                    [program],
                    on_line=self.lines.append,
                    log=log,
                    env={**self.env, **more, "SCCACHE_IDLE_TIMEOUT": "0"},
                    nice=nice,
                    first_to_die=True,
                    on_start=self._started,
                )

        self.thread = threading.Thread(target=work, name="sccache", daemon=True)
        self.thread.start()

    def _started(self, session: int) -> None:
        self.session = session

    def wait(self, seconds: float) -> bool:
        """Say whether it answers within that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.thread.is_alive():
            if self.socket.exists() and self._ask(["--show-stats"], 5):
                return True
            time.sleep(0.05)
        return False

    def counts(self) -> dict[str, Any]:
        """Return what it did; errors are those of the storage."""
        said = self._ask(["--show-stats", "--stats-format", "json"], 10)
        try:
            stats = json.loads(said)["stats"]
        except (ValueError, KeyError, TypeError):
            return {"program": "sccache"}
        return {"program": "sccache", **summed(stats)}

    def stop(self) -> None:
        """End it, and what it still compiles."""
        if self.thread.is_alive():
            self._ask(["--stop-server"], STOP_S)
            self.thread.join(STOP_S)
        if self.thread.is_alive() and self.session:
            stop_tree(self.session)
            self.thread.join(STOP_S)
        self.socket.unlink(missing_ok=True)

    def said(self) -> str:
        """Return the last of what it said."""
        return self.lines[-1] if self.lines else "it does not answer"

    def _ask(self, words: list[str], seconds: float) -> str:
        # a client that finds no server would start one, which nobody ends
        if not self.socket.exists() or not self.thread.is_alive():
            return ""
        found = run([self.program, *words], env=self.env, timeout=seconds)
        return found.out or " " if found.ok else ""


def summed(stats: Mapping[str, Any]) -> dict[str, int]:
    """Return hits, misses and errors of sccache's statistics.

    One compile by nvcc counts several times: sccache keeps the result of each of its
    steps by itself.
    """

    def total(name: str) -> int:
        return sum(stats.get(name, {}).get("counts", {}).values())

    return {
        "hits": total("cache_hits"),
        "misses": total("cache_misses"),
        "errors": total("cache_errors")
        + sum(
            int(stats.get(name, 0))
            for name in ("cache_timeouts", "cache_read_errors", "cache_write_errors")
        ),
        "not_cached": sum(stats.get("not_cached", {}).values()),
    }
