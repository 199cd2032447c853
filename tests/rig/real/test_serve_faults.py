# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What happens to a real server, and what is left of it: nothing, in each case."""

from __future__ import annotations

import http.server
import io
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support import tiny_model, vllm_cpu
from tests.rig.support.nobody import needs_root
from tests.rig.support.vllm_cpu import Traces
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, InUseError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.serve import look, members, probe
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve import serve
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.real


def quiet() -> Console:
    """Return a console that nobody reads."""
    return Console(io.StringIO(), env={})


@dataclass
class Ward:
    """Where servers are hurt."""

    root: StateRoot
    python: Path
    folder: Path

    def plan(self, model: Path, name: str = "one", **how: Any) -> Any:
        """Return a plan."""
        return vllm_cpu.plan(self.root.path, model, name, python=self.python, **how)

    def start(self, **how: Any) -> tuple[ServerRecord, Traces]:
        """Start a server and note what it holds."""
        model = tiny_model.write(self.folder / "tiny")
        serve(quiet(), self.plan(model, **how), self.root, timeout=400)
        record = records.load(self.root, "one")
        assert record is not None
        return record, vllm_cpu.traces(record.session, record.port)

    def state(self, record: ServerRecord, **how: Any) -> look.ServerStatus:
        """Look at it."""
        return look.look(self.root, record, **how)

    def dead(self, record: ServerRecord) -> look.ServerStatus:
        """Wait until it is dead, and return what a look finds."""
        deadline = time.monotonic() + 30
        while members.of(record) and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.state(record)


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    """Give a place for one server, and see that nothing is left in shared memory."""
    made = Ward(
        StateRoot(tmp_path / "root"),
        vllm_cpu.environment() / "bin" / "python",
        tmp_path,
    )
    with vllm_cpu.nothing_left_in_shm(made.root.path):
        yield made
        for record in records.listing(made.root):
            serve_stop(quiet(), made.root, record.name, drain=0)


def one_of(record: ServerRecord, role: str) -> int:
    """Return the last process of a role."""
    return [m.pid for m in members.of(record) if m.role == role][-1]


def test_stopped_worker_is_hung(ward: Ward) -> None:
    """A worker that a signal stopped: hung though /health says 200, and it comes back.

    Stopping such a server ends it all the same.
    """
    record, holds = ward.start(tensor=2)
    assert record.roles["worker"] == 2
    assert {m.role for m in members.of(record)} >= {"keeper", "api", "engine"}
    worker = one_of(record, "worker")
    os.kill(worker, signal.SIGSTOP)
    found = ward.state(record, probe_s=6)
    assert found.state is State.HUNG, found
    assert str(worker) in found.reason
    assert probe.health(record).ok
    assert ward.state(record, deep=False).state is State.DEGRADED
    os.kill(worker, signal.SIGCONT)
    assert ward.state(record, probe_s=60).state is State.READY
    os.kill(worker, signal.SIGSTOP)
    start = time.monotonic()
    done = serve_stop(quiet(), ward.root)
    assert time.monotonic() - start < 25
    assert worker in done.ended
    holds.assert_gone()


def test_killed_worker(ward: Ward) -> None:
    """A killed worker takes the server with it, and nothing of it stays."""
    record, holds = ward.start(tensor=2)
    os.kill(one_of(record, "worker"), signal.SIGKILL)
    found = ward.dead(record)
    assert found.state is State.DEAD
    assert "exit status" in found.reason or "signal" in found.reason
    holds.assert_gone()
    serve_stop(quiet(), ward.root)
    assert records.listing(ward.root) == []


@pytest.mark.parametrize("role", ["api", "engine"])
def test_killed(ward: Ward, role: str) -> None:
    """After the API server or the engine is killed the others are ended, unasked."""
    record, holds = ward.start()
    os.kill(one_of(record, role), signal.SIGKILL)
    found = ward.dead(record)
    assert found.state is State.DEAD
    if role == "api":
        assert "signal 9" in found.reason
    holds.assert_gone()


def test_killed_keeper(ward: Ward) -> None:
    """Without its keeper a server serves on, is called degraded, and can be stopped."""
    record, holds = ward.start()
    os.kill(record.session, signal.SIGKILL)
    time.sleep(0.5)
    found = ward.state(record)
    assert found.state is State.DEGRADED
    assert "keeper" in found.reason
    assert probe.completion(record, timeout=60).ok
    serve_stop(quiet(), ward.root)
    holds.assert_gone()


def test_all_killed_at_once(ward: Ward) -> None:
    """When nobody could clean up, stopping removes the shared memory that it left."""
    record, holds = ward.start(tensor=2)
    for member in members.of(record):
        os.kill(member.pid, signal.SIGKILL)
    time.sleep(1)
    left = [path for path in holds.mapped if os.path.exists(path)]
    assert left
    done = serve_stop(quiet(), ward.root)
    assert set(left) <= set(done.shm_removed)
    holds.assert_gone()


def test_full_disk_for_the_log(ward: Ward) -> None:
    """A log whose disk is full costs lines of the log, and not the server."""
    needs_root()
    disk = ward.folder / "small"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", os.fspath(disk)]
    subprocess.run(["mount", *options], check=True)
    try:
        (disk / "filler").write_bytes(b"x" * (44 << 10))
        record, holds = ward.start(log=disk / "one.log")
        with (disk / "filler").open("ab", buffering=0) as fh:
            try:
                fh.write(b"x" * (64 << 10))
                fh.write(b"x")
            except OSError:
                pass
        found = ward.state(record)
        assert found.state is State.DEGRADED
        assert "disk of its log is full" in found.reason
        assert probe.completion(record, timeout=60).ok
        serve_stop(quiet(), ward.root)
        holds.assert_gone()
    finally:
        subprocess.run(["umount", os.fspath(disk)], check=True)


def test_no_room_for_the_log_at_all(ward: Ward) -> None:
    """Where no log can be written nothing is started."""
    model = tiny_model.write(ward.folder / "tiny")
    (ward.folder / "file").touch()
    plan = ward.plan(model, log=ward.folder / "file" / "one.log")
    with pytest.raises(StepFailed, match="cannot write"):
        serve(quiet(), plan, ward.root)
    assert records.listing(ward.root) == []


def test_port_of_somebody_else(ward: Ward) -> None:
    """A port that another program has is told at once, before vLLM is started."""
    model = tiny_model.write(ward.folder / "tiny")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        plan = ward.plan(model, port=other.getsockname()[1])
        start = time.monotonic()
        with pytest.raises(InUseError) as caught:
            serve(quiet(), plan, ward.root)
    assert time.monotonic() - start < 3
    assert caught.value.code == ExitCode.IN_USE
    assert not plan.log.exists()


def test_port_that_is_taken_meanwhile(ward: Ward) -> None:
    """Who takes the port while vLLM is still being imported is no server."""
    plan = ward.plan(tiny_model.write(ward.folder / "tiny"), key="sesame-4711")
    told: list[str] = []

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

    def take() -> None:
        deadline = time.monotonic() + 60
        while records.load(ward.root, "one") is None and time.monotonic() < deadline:
            time.sleep(0.05)
        address = ("127.0.0.1", plan.port)
        with http.server.ThreadingHTTPServer(address, Stranger) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            while records.load(ward.root, "one") and time.monotonic() < deadline:
                time.sleep(0.1)
            server.shutdown()
            thread.join()

    thread = threading.Thread(target=take)
    thread.start()
    with pytest.raises(InUseError, match=f"is held by PID {os.getpid()} "):
        serve(quiet(), plan, ward.root, timeout=400)
    thread.join()
    assert told and not any(told)
    assert records.listing(ward.root) == []


def fails(ward: Ward, plan: Any) -> StepFailed:
    """Start what cannot start, and return why; nothing of it may be left."""
    with pytest.raises(StepFailed) as caught:
        serve(quiet(), plan, ward.root, timeout=400)
    assert records.listing(ward.root) == []
    assert vllm_cpu.port_is_free(plan.port)
    assert "Engine core initialization failed" not in caught.value.what
    return caught.value


def test_missing_shard(ward: Ward) -> None:
    """A model without one of its files: the error names what is missing."""
    model = tiny_model.write(ward.folder / "sharded", shards=2)
    (model / "model-00002-of-00002.safetensors").unlink()
    problem = fails(ward, ward.plan(model))
    assert problem.code == ExitCode.FAILED
    assert problem.details


def test_wrong_head_count(ward: Ward) -> None:
    """Heads that two cards cannot share: the error says so."""
    heads = {"num_attention_heads": 3, "num_key_value_heads": 3}
    model = tiny_model.write(ward.folder / "odd", config=heads)
    problem = fails(ward, ward.plan(model, tensor=2))
    said = " ".join([problem.what, problem.usual, *problem.details])
    assert "divisible" in said or "heads" in said


def test_bad_flag(ward: Ward) -> None:
    """A flag that does not exist is named."""
    model = tiny_model.write(ward.folder / "tiny")
    problem = fails(ward, ward.plan(model, extra=["--enable-nvlink-optimization"]))
    said = " ".join([problem.what, problem.usual, *problem.details])
    assert "--enable-nvlink-optimization" in said


def test_first_token_kills_the_engine(ward: Ward) -> None:
    """A server that listens but dies under its first request was never ready."""
    model = tiny_model.write(ward.folder / "small", head=16)
    problem = fails(ward, ward.plan(model))
    assert "did not start" in problem.what
