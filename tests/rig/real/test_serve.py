# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A real server that lives well: ready, looked at, asked, one of two, drained."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.support import vllm_cpu
from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, InUseError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.guard import gate
from tools.rig.guard.targets import Targets
from tools.rig.serve import look, members, probe
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve import Served, serve
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.real

KEY = "open-sesame-8461"


@dataclass
class Site:
    """One state root with a server, and what is needed to start more."""

    root: StateRoot
    python: Path
    models: dict[str, Path]
    done: Served

    @property
    def record(self) -> ServerRecord:
        """The record of the first server."""
        found = records.load(self.root, "one")
        assert found is not None
        return found


def quiet() -> Console:
    """Return a console that nobody reads."""
    return Console(io.StringIO(), env={})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Give a server with tensor parallel 1 and an API key, which no test ends."""
    home = tmp_path_factory.mktemp("serve ü'")
    python = vllm_cpu.environment() / "bin" / "python"
    root = StateRoot(home / "root")
    models = vllm_cpu.models(home / "models")
    plan = vllm_cpu.plan(root.path, models["llama"], python=python, key=KEY)
    done = serve(quiet(), plan, root, timeout=400)
    yield Site(root, python, models, done)
    its = records.load(root, "one")
    assert its is not None
    holds = vllm_cpu.traces(its.session, plan.port)
    serve_stop(quiet(), root, "one")
    holds.assert_gone()


def ask(record: ServerRecord, tokens: int, timeout: float = 120) -> dict[str, object]:
    """Have some tokens made and return the choice."""
    body = {
        "model": vllm_cpu.MODEL,
        "prompt": "hello",
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    key = probe.key_of(record, {})
    got = probe.ask(record, "/v1/completions", body, timeout=timeout, key=key)
    assert got.ok, got
    choice: dict[str, object] = got.json()["choices"][0]
    return choice


def test_ready_means_a_token(site: Site) -> None:
    """What is called ready has spoken, and its record says who it is."""
    assert not probe.doubtful(site.done.text)
    record = site.record
    assert record.version.startswith("0.32")
    assert record.roles["engine"] == 1
    assert members.api_alive(record)
    assert {m.role for m in members.of(record)} >= {"keeper", "api", "engine"}


def test_status_of_a_ready_server(site: Site) -> None:
    """A deep look finds it ready, a quick one says the same and is quick."""
    report = serve_status(quiet(), site.root)
    [one] = report.servers
    assert (one.state, one.reason) == (State.READY, "")
    assert report.exit_code == ExitCode.OK
    assert one.running == 0 and one.kv is not None
    json.dumps(report.to_json())
    start = time.monotonic()
    [one] = serve_status(quiet(), site.root, deep=False).servers
    assert one.state is State.READY
    # a second on a quiet machine; others may use this one
    assert time.monotonic() - start < 3


def test_the_key_is_wanted_and_not_written(site: Site) -> None:
    """A wrong key is refused, tells nothing about the engine, and stands nowhere."""
    said = probe.completion(site.record, timeout=30, key="wrong")
    assert said.refused and "401" in said.problem
    assert probe.completion(site.record, timeout=30, key=KEY).ok
    folder = records.folder(site.root)
    held = b"".join(f.read_bytes() for f in folder.iterdir() if f.is_file())
    assert KEY.encode() not in held
    for member in members.of(site.record):
        line = Path(f"/proc/{member.pid}/cmdline").read_bytes()
        assert KEY.encode() not in line


def test_a_proxy_is_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy variables of a user do not come between us and this machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert look.look(site.root, site.record).state is State.READY


def test_second_start_on_the_port(site: Site) -> None:
    """The port and the name of a server are refused at once, and it serves on."""
    port = site.record.port
    for name in ("two", "one"):
        plan = vllm_cpu.plan(
            site.root.path, site.models["llama"], name, python=site.python, port=port
        )
        start = time.monotonic()
        with pytest.raises(InUseError) as caught:
            serve(quiet(), plan, site.root)
        assert caught.value.code == ExitCode.IN_USE
        assert "one" in caught.value.what
        assert time.monotonic() - start < 3
    assert look.look(site.root, site.record).state is State.READY


def test_the_guard_sees_it(site: Site) -> None:
    """Who would build in its environment is told of it."""
    found = gate.look_at(Targets.of(Path(site.record.environment), None))
    pids = {user.pid for user in found.users}
    assert {m.pid for m in members.of(site.record)} & pids
    assert site.record.pid in pids


def test_busy_is_not_hung(site: Site) -> None:
    """A server that is full answers late, and is never called hung."""
    record = site.record
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            ask(record, 480)

    threads = [threading.Thread(target=load) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(2)
        for limit in (0.2, 1.0):
            one = look.look(site.root, record, probe_s=limit)
            assert one.state is State.READY, one
            # between two batches none may run for a moment, but tokens were made
            assert one.tokens_per_s, one
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_logs(site: Site) -> None:
    """The end of the log is printed, as many lines as are wanted."""
    out = io.StringIO()
    serve_logs(site.root, "one", lines=3, out=out)
    assert len(out.getvalue().splitlines()) == 3


def test_two_servers_and_one_is_stopped(site: Site) -> None:
    """Draining one of two loses no request and leaves the other alone."""
    plan = vllm_cpu.plan(
        site.root.path, site.models["qwen2"], "two", python=site.python, drain=60
    )
    serve(quiet(), plan, site.root, timeout=400)
    assert [s.state for s in serve_status(quiet(), site.root).servers] == [
        State.READY,
        State.READY,
    ]
    two = records.load(site.root, "two")
    assert two is not None
    holds = vllm_cpu.traces(two.session, two.port)
    answers: list[dict[str, object]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(two, 400)))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1)
    done = serve_stop(quiet(), site.root, "two", drain=60)
    for thread in threads:
        thread.join()
    assert [a["finish_reason"] for a in answers] == ["length"] * 12
    assert not done.killed
    holds.assert_gone()
    assert records.load(site.root, "two") is None
    assert Path(two.log).is_file()
    assert look.look(site.root, site.record).state is State.READY


def test_stop_waits_without_a_drain_of_the_server(site: Site) -> None:
    """A server that knows no draining is stopped when its requests are done."""
    plan = vllm_cpu.plan(
        site.root.path, site.models["llama"], "three", python=site.python
    )
    serve(quiet(), plan, site.root, timeout=400)
    three = records.load(site.root, "three")
    assert three is not None
    answers: list[dict[str, object]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(three, 400)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1)
    done = serve_stop(quiet(), site.root, "three", drain=60)
    for thread in threads:
        thread.join()
    assert done.drained
    assert [a["finish_reason"] for a in answers] == ["length"] * 4


def test_nonsense_is_not_ready(site: Site) -> None:
    """A model that computes NaN answers 200 with no text: it is refused and ended."""
    plan = vllm_cpu.plan(site.root.path, site.models["nan"], "nan", python=site.python)
    neighbours = vllm_cpu.traces(site.record.session, plan.port).mapped
    with (
        vllm_cpu.nothing_left_in_shm(site.root.path, "nan") as mapped,
        pytest.raises(StepFailed) as caught,
    ):
        serve(quiet(), plan, site.root, timeout=400)
    assert mapped
    assert vllm_cpu.traces(site.record.session, plan.port).mapped == neighbours
    assert "no text" in caught.value.what
    assert "NaN" in caught.value.usual
    assert records.load(site.root, "nan") is None
    assert vllm_cpu.port_is_free(plan.port)
    assert os.path.exists(plan.log)
