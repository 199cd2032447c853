# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The server of a build's sccache: started, waited for, replaced, stopped."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base import near
from tools.rig.base.process import Result
from tools.rig.builds import cache_server
from tools.rig.builds.cache_server import address, serving
from tools.rig.builds.compile_cache import CompileCache

SCCACHE = CompileCache("sccache", "/bin/sccache")
SHARED = CompileCache("sccache", "/bin/sccache", True)
STATS = {
    "cache_hits": {"counts": {"CUDA": 2, "PTX": 1}},
    "cache_misses": {"counts": {"CUDA": 4}},
    "cache_errors": {"counts": {}},
    "cache_write_errors": 3,
    "not_cached": {"-E": 1},
}


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({"SCCACHE_REDIS": "redis://:pw@cache/1"}, "cache:6379"),
        ({"SCCACHE_REDIS_ENDPOINT": "tcp://10.0.0.1:7000"}, "10.0.0.1:7000"),
        ({"SCCACHE_MEMCACHED_ENDPOINT": "cache"}, "cache:11211"),
        ({"SCCACHE_ENDPOINT": "https://s3.example"}, "s3.example:443"),
        ({"SCCACHE_ENDPOINT": "http://s3", "HTTPS_PROXY": "p"}, ""),
        ({"SCCACHE_BUCKET": "objects"}, ""),
        ({"SCCACHE_REDIS": "redis://host:port"}, ""),
        ({}, ""),
    ],
)
def test_address(env: dict[str, str], want: str) -> None:
    """A shared cache that is named by its address can be asked whether it is there."""
    assert address(env) == want


def test_summed() -> None:
    """Statistics become four numbers."""
    found = cache_server.summed(STATS)
    assert found == {"hits": 3, "misses": 4, "errors": 3, "not_cached": 1}


class Server:
    """A stand-in for ``stream``: a socket that listens until it is told to end."""

    def __init__(self, refuses: Callable[[dict[str, str]], bool]) -> None:
        self.refuses = refuses
        self.envs: list[dict[str, str]] = []
        self.end = threading.Event()

    def __call__(self, argv: list[str], **options: Any) -> Result:
        """Run until told to end."""
        env = options["env"]
        self.envs.append(env)
        options["on_start"](0)
        if self.refuses(env):
            options["on_line"]("sccache: error: no storage")
            return Result(tuple(argv), 2, "", "", 0.0)
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(env["SCCACHE_SERVER_UDS"])
            own.listen()
            self.end.wait(10)
        return Result(tuple(argv), 0, "", "", 0.0)


@pytest.fixture
def asked(fp: FakeProcess) -> FakeProcess:
    """Answer what clients ask."""
    fp.allow_unregistered(False)
    show = ["/bin/sccache", "--show-stats"]
    fp.register(show, stdout="statistics", occurrences=9)
    fp.register([*show, "--stats-format", "json"], stdout=json.dumps({"stats": STATS}))
    return fp


def stop_with(fp: FakeProcess, server: Server) -> None:
    """Let the server end when it is told to."""
    fp.register(
        ["/bin/sccache", "--stop-server"], callback=lambda process: server.end.set()
    )


def never(env: dict[str, str]) -> bool:
    """Refuse nothing."""
    return False


def test_other_caches(tmp_path: Path) -> None:
    """For ccache no server is run."""
    with serving(CompileCache("ccache", "c"), {}, tmp_path / "log") as served:
        assert (served.add, served.notes) == ({}, [])


def test_a_build(tmp_path: Path, asked: FakeProcess) -> None:
    """A server runs in the foreground, on a socket of its own, as long as the build."""
    server = Server(never)
    stop_with(asked, server)
    with serving(SCCACHE, {"A": "1"}, tmp_path / "log", start=server) as served:
        path = Path(served.add["RIG_CACHE_SOCKET"])
        assert path.exists() and served.add["SCCACHE_SERVER_UDS"] == str(path)
    (env,) = server.envs
    assert env["SCCACHE_NO_DAEMON"] == "1" and env["SCCACHE_IDLE_TIMEOUT"] == "0"
    assert env["A"] == "1"
    assert served.counts["hits"] == 3 and served.counts["program"] == "sccache"
    assert not path.parent.exists()


def test_a_shared_cache(tmp_path: Path, asked: FakeProcess) -> None:
    """A shared cache that answers is used, and compiles may ask whether it still is."""
    server = Server(never)
    stop_with(asked, server)
    with socket.create_server(("127.0.0.1", 0)) as redis:
        where = f"127.0.0.1:{redis.getsockname()[1]}"
        env = {"SCCACHE_REDIS": f"redis://{where}"}
        with serving(SHARED, env, tmp_path / "log", start=server) as served:
            assert served.add["RIG_CACHE_SHARED"] == where
            (Path(served.add["RIG_CACHE_SOCKET"]).parent / near.AWAY).touch()
    assert served.notes == [f"the shared compile cache at {where} went away"]
    assert server.envs[0]["SCCACHE_REDIS"] == f"redis://{where}"


def test_without_the_shared_cache(tmp_path: Path, asked: FakeProcess) -> None:
    """One that refuses, or that nobody can ask, leaves a cache of this machine."""
    server = Server(lambda env: "SCCACHE_BUCKET" in env)
    stop_with(asked, server)
    env = {"SCCACHE_BUCKET": "b", "SCCACHE_DIR": "/here"}
    with serving(SHARED, env, tmp_path / "log", start=server) as served:
        assert served.add["RIG_CACHE_DIR"] == "/here"
        assert "RIG_CACHE_SHARED" not in served.add
    assert served.notes == ["sccache did not start: sccache: error: no storage"]
    assert "SCCACHE_BUCKET" not in server.envs[-1]


def test_no_server_at_all(tmp_path: Path) -> None:
    """Where none can be started, the build goes on without a cache."""
    server = Server(lambda env: True)
    with serving(SCCACHE, {}, tmp_path / "log", start=server) as served:
        assert served.add == {"RIG_CACHE": ""}
    assert served.notes and served.counts == {}


def test_one_that_hangs(
    tmp_path: Path, fp: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that never answers is ended with all that it runs."""
    monkeypatch.setattr(cache_server, "STOP_S", 0.2)
    end = threading.Event()

    def hangs(argv: list[str], **options: Any) -> Result:
        options["on_start"](77)
        end.wait(10)
        return Result(tuple(argv), 0, "", "", 0.0)

    stopped: list[int] = []

    def stop(session: int) -> None:
        stopped.append(session)
        end.set()

    monkeypatch.setattr(cache_server, "stop_tree", stop)
    log = tmp_path / "log"
    with serving(SCCACHE, {}, log, start=hangs, start_s=0.2) as served:
        assert served.notes == ["sccache did not start: it does not answer"]
    assert stopped == [77]
