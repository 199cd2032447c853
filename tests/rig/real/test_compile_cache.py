# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The compile caches themselves: ccache, sccache, and a redis-server between two."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.disks import memory, refused
from tests.rig.support.toolkit import sm70_toolkit
from tests.rig.support.yard import Yard
from tools.rig.builds import cache_server, compile_cache
from tools.rig.builds.compile_cache import CompileCache

pytestmark = pytest.mark.real

GXX = "g++"


def need(name: str) -> str:
    """Return a program's path; skips where it is not here."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Yard, Yard]:
    """Return two clones in folders of their own."""
    return Yard(tmp_path / "root", "one"), Yard(tmp_path / "root", "two")


def ccache(yard: Yard, log: Path) -> dict[str, str]:
    """Return the environment of a compile with ccache."""
    chosen = CompileCache("ccache", need("ccache"))
    return yard.variables(chosen, {"CCACHE_STATSLOG": str(log)})


def test_ccache_hits_from_another_clone(
    pair: tuple[Yard, Yard], tmp_path: Path
) -> None:
    """A clone in another folder, with its own environment, compiles nothing again."""
    nvcc = str(sm70_toolkit().nvcc)
    log = tmp_path / "counts"
    for yard in pair:
        for compiler, source in ((nvcc, "csrc/k.cu"), (GXX, "csrc/h.cpp")):
            flags = ("-arch=sm_70",) if source.endswith("u") else ()
            done = yard.compile(compiler, source, ccache(yard, log), *flags)
            assert done.returncode == 0, done.stderr
            own = yard.checkout / "csrc" / "own.h"
            lent = yard.env / "include" / "lent.h"
            # ninja must compile again when these of this clone change
            assert {own, lent, yard.checkout / source} <= yard.needs(source)
    counts = compile_cache.counts_of_ccache(log)
    want = {"hits": 2, "misses": 2, "errors": 0, "not_cached": 0}
    assert counts == {"program": "ccache", **want}
    assert pair[0].object("csrc/k.cu") == pair[1].object("csrc/k.cu")


def test_ccache_sees_nvccs_own_variables(
    pair: tuple[Yard, Yard], tmp_path: Path
) -> None:
    """Another host compiler or flag in nvcc's variables is another object."""
    nvcc = str(sm70_toolkit().nvcc)
    yard, log = pair[0], tmp_path / "counts"
    for more in ("-DEXTRA=1", "-DEXTRA=2", "-DEXTRA=1"):
        env = {**ccache(yard, log), "NVCC_PREPEND_FLAGS": more}
        done = yard.compile(nvcc, "csrc/h.cpp", env)
        assert done.returncode == 0, done.stderr
    counts = compile_cache.counts_of_ccache(log)
    assert (counts["misses"], counts["hits"]) == (2, 1)


def test_another_change_misses(pair: tuple[Yard, Yard], tmp_path: Path) -> None:
    """A header that changed in one clone is not taken for the other's."""
    first, second = pair
    log = tmp_path / "counts"
    (second.env / "include" / "lent.h").write_text("#define LENT 5\n")
    for yard in pair:
        assert yard.compile(GXX, "csrc/h.cpp", ccache(yard, log)).returncode == 0
    assert compile_cache.counts_of_ccache(log)["misses"] == 2
    assert first.object("csrc/h.cpp") != second.object("csrc/h.cpp")


def test_a_full_cache_disk_fails_no_compile(tmp_path: Path) -> None:
    """Where the cache's disk is full, compiles go on without it."""
    problem = refused(memory("size=1m"))
    if problem:
        pytest.skip(f"no disk can be mounted: {problem}")
    yard = Yard(tmp_path / "root", "one")
    with memory("size=1m") as disk:
        (disk / "filler").write_bytes(b"x" * (1 << 20))
        chosen = CompileCache("ccache", need("ccache"))
        env = yard.variables(chosen, {"CCACHE_DIR": str(disk / "cache")})
        done = yard.compile(GXX, "csrc/h.cpp", env)
        assert done.returncode == 0 and not done.stderr
        assert not (disk / "cache").exists()


def sccache() -> CompileCache:
    """Return the choice of sccache."""
    return CompileCache("sccache", need("sccache"))


def servers(env: dict[str, str]) -> list[int]:
    """Return the servers, and servers of servers, on that socket."""
    found = []
    mark = f"SCCACHE_SERVER_UDS={env['SCCACHE_SERVER_UDS']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = "sccache" in (process / "comm").read_text()
            if named and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def test_sccache_in_one_folder(tmp_path: Path) -> None:
    """The server of a build caches, hides a warning of nvcc, and ends with it."""
    nvcc = warning_nvcc(tmp_path, str(sm70_toolkit().nvcc))
    yard = Yard(tmp_path / "root", "one")
    chosen = sccache()
    env = yard.variables(chosen)
    with cache_server.serving(chosen, env, tmp_path / "log") as served:
        told = {**env, **served.add}
        made = []
        for _ in range(2):
            done = yard.compile(nvcc, "csrc/k.cu", told, "-arch=sm_70")
            assert done.returncode == 0, done.stderr
            made.append(yard.object("csrc/k.cu"))
        assert len(servers(told)) == 1
        for more in ("-DEXTRA=1", "-DEXTRA=2"):
            again = {**told, "NVCC_PREPEND_FLAGS": more}
            assert yard.compile(nvcc, "csrc/h.cpp", again).returncode == 0
            made.append(yard.object("csrc/h.cpp"))
    assert served.notes == []
    assert served.counts["hits"] and served.counts["misses"]
    assert not served.counts["errors"]
    assert made[0] == made[1] and made[2] != made[3]
    assert not servers(told)
    assert not Path(served.add["RIG_CACHE_SOCKET"]).parent.exists()


def warning_nvcc(folder: Path, nvcc: str) -> str:
    """Return an nvcc that warns of old cards, as the newest that knows sm_70 does."""
    bin_ = folder / "warns" / "bin"
    bin_.mkdir(parents=True)
    script = bin_ / "nvcc"
    script.write_text(
        "#!/bin/sh\n"
        'case "$* $NVCC_APPEND_FLAGS" in *-Wno-deprecated-gpu-targets*) ;; *)\n'
        'echo "nvcc warning : Support for offline compilation for architectures '
        "prior to '<compute/sm/lto>_75' will be removed in a future release "
        '(Use -Wno-deprecated-gpu-targets to suppress warning)." >&2;; esac\n'
        f'exec {nvcc} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_sccache_that_is_killed(tmp_path: Path) -> None:
    """A server that dies costs the cache, and no client starts another one."""
    yard = Yard(tmp_path / "root", "one")
    chosen = sccache()
    env = yard.variables(chosen)
    with cache_server.serving(chosen, env, tmp_path / "log") as served:
        told = {**env, **served.add}
        for pid in servers(told):
            os.kill(pid, signal.SIGKILL)
        done = yard.compile(GXX, "csrc/h.cpp", told)
        assert done.returncode == 0, done.stderr
        assert servers(told) == []
    assert served.counts == {"program": "sccache"}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a redis-server, and return its address and process."""
    program = need("redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path / "redis"
    folder.mkdir()
    argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen([*argv, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        yield f"tcp://127.0.0.1:{port}", server
    finally:
        server.kill()
        server.wait()


def test_two_machines_share_a_redis(
    tmp_path: Path, redis: tuple[str, subprocess.Popen[bytes]]
) -> None:
    """What one root compiled, another one with nothing of its own gets from redis."""
    address, server = redis
    chosen = dataclasses.replace(sccache(), shared=True)
    counts = []
    for name in ("one", "two"):
        yard = Yard(tmp_path / name / "root", "clone")
        env = yard.variables(chosen, {"SCCACHE_REDIS_ENDPOINT": address})
        with cache_server.serving(chosen, env, tmp_path / "log") as served:
            assert served.notes == []
            done = yard.compile(GXX, "csrc/h.cpp", {**env, **served.add})
            assert done.returncode == 0, done.stderr
        counts.append((served.counts["hits"], served.counts["misses"]))
        assert not (yard.root.cache / "sccache").exists()
    assert counts == [(0, 1), (1, 0)]


def test_a_redis_that_goes_away(
    tmp_path: Path, redis: tuple[str, subprocess.Popen[bytes]]
) -> None:
    """A shared cache that goes away in the middle costs no compile any time."""
    address, server = redis
    yard = Yard(tmp_path / "root", "one")
    chosen = dataclasses.replace(sccache(), shared=True)
    env = yard.variables(chosen, {"SCCACHE_REDIS_ENDPOINT": address})
    with cache_server.serving(chosen, env, tmp_path / "log") as served:
        told = {**env, **served.add}
        assert yard.compile(GXX, "csrc/h.cpp", told).returncode == 0
        server.kill()
        server.wait()
        start = time.monotonic()
        for flag in ("-DA=1", "-DA=2"):
            assert yard.compile(GXX, "csrc/h.cpp", told, flag).returncode == 0
        assert time.monotonic() - start < 10
    where = address.partition("//")[2]
    assert served.notes == [f"the shared compile cache at {where} went away"]


def test_a_redis_that_is_not_there(tmp_path: Path) -> None:
    """Without the shared cache a build has one of this machine's own."""
    yard = Yard(tmp_path / "root", "one")
    chosen = dataclasses.replace(sccache(), shared=True)
    env = yard.variables(chosen, {"SCCACHE_REDIS": "redis://127.0.0.1:1"})
    with cache_server.serving(chosen, env, tmp_path / "log") as served:
        done = yard.compile(GXX, "csrc/h.cpp", {**env, **served.add})
        assert done.returncode == 0, done.stderr
    assert served.notes == ["the shared compile cache at 127.0.0.1:1 does not answer"]
    assert served.counts["misses"] == 1
    assert (yard.root.cache / "sccache").is_dir()
