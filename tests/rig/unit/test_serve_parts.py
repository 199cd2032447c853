# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The parts of a server's life that need no server: records, counters, states."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc
from tests.rig.support.server_record import PLAN, a_record
from tools.rig.base.errors import StepFailed, UsageError
from tools.rig.base.state import StateRoot
from tools.rig.serve import loading, members, metrics, probe
from tools.rig.serve import record as records


def test_plan_hides_secrets() -> None:
    """Neither the JSON nor the words of a plan hold a secret."""
    text = json.dumps(PLAN.to_json()) + " ".join(PLAN.lines())
    assert "sesame" not in text
    assert "hf_x" not in text
    assert "DEBUG" in text
    assert "note: no NVLink between the cards" in PLAN.lines()
    assert PLAN.environment == Path("/envs/one")


def test_record_comes_back(tmp_path: Path) -> None:
    """A record is read as it was written, and what was seen later lies on top."""
    root = StateRoot(tmp_path)
    record = a_record(members=[(150, 100), (200, 100)])
    records.save(root, record)
    assert records.load(root, "qwen") == record
    record.members, record.sample = [(200, 100)], {"at": 5.0}
    records.save_seen(root, record)
    assert records.load(root, "qwen") == record
    assert records.listing(root) == [record]
    other = a_record(token="token-2")
    records.save(root, other)
    assert records.load(root, "qwen") == other
    records.remove(root, other)
    assert records.load(root, "qwen") is None
    assert records.listing(root) == []


def test_broken_records_are_named(tmp_path: Path) -> None:
    """A file that is no record hides no other server, and is not hidden itself."""
    root = StateRoot(tmp_path)
    records.save(root, a_record())
    folder = records.folder(root)
    (folder / "cut.json").write_text("{")
    (folder / "other.json").write_text('{"name": "other"}')
    (folder / "list.json").write_text("[]")
    (folder / "null.json").write_text("null")
    (folder / "moved.json").write_bytes((folder / "qwen.json").read_bytes())
    odd = {**a_record().to_json(), "name": "odd", "port": "8000"}
    (folder / "odd.json").write_text(json.dumps(odd))
    (folder / ".hidden.json").write_text("{")
    assert [r.name for r in records.listing(root)] == ["qwen"]
    bad = records.broken(root)
    names = ["cut", "list", "moved", "null", "odd", "other"]
    assert [one.name for one in bad] == names
    for one in bad:
        assert str(one.file) in one.problem
        assert one.hint == f"mv {one.file} {one.file}.broken"
        with pytest.raises(StepFailed, match="cannot read"):
            records.load(root, one.name)
    assert records.broken(StateRoot(tmp_path / "none")) == []


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "a\nb", "a" * 121, "模" * 41])
def test_names(tmp_path: Path, name: str) -> None:
    """A name that is no file name is refused."""
    with pytest.raises(UsageError):
        records.path_of(StateRoot(tmp_path), name)


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")],
)
def test_address(host: str, address: str) -> None:
    """A server that listens everywhere is asked on this machine."""
    assert a_record(host=host).address == address


def a_machine(tmp_path: Path, *, leader: int = 100) -> Path:
    """Return a /proc: keeper, API server, a worker, a stranger, somebody else's."""
    proc = FakeProc(tmp_path / "proc")
    tree = ((150, 1, leader), (200, 150, 100), (201, 200, 130), (300, 1, 99))
    for pid, parent, start in tree:
        proc.add(pid, parent=parent, start=start, uid=1000)
        _session(proc.root, pid, 150 if pid < 300 else 300)
    proc.add(202, parent=150, uid=1001)
    _session(proc.root, 202, 150)
    (proc.root / "201" / "comm").write_text("VLLM::Worker_TP\n")
    return proc.root


def _session(root: Path, pid: int, session: int) -> None:
    file = root / str(pid) / "stat"
    head, tail = file.read_text().rsplit(")", 1)
    fields = tail.split()
    fields[3] = str(session)
    file.write_text(f"{head}) {' '.join(fields)}\n")


def test_members_of_a_led_session(tmp_path: Path) -> None:
    """All of the session are ours while its leader is the recorded one."""
    proc = a_machine(tmp_path)
    found = members.of(a_record(), proc)
    assert [(m.pid, m.role) for m in found] == [
        (150, "keeper"),
        (200, "api"),
        (201, "worker"),
    ]
    assert members.api_alive(a_record(), proc)


def test_members_have_whole_names(tmp_path: Path) -> None:
    """A name that the kernel cut is read where the process wrote it."""
    proc = a_machine(tmp_path)
    for line, name in (
        (b"VLLM::Worker_TP1\0\0", "VLLM::Worker_TP1"),
        (b"/opt/python\0-c\0", "VLLM::Worker_TP"),
        (b"", "VLLM::Worker_TP"),
    ):
        (proc / "201" / "cmdline").write_bytes(line)
        [worker] = [m for m in members.of(a_record(), proc) if m.pid == 201]
        assert (worker.role, worker.name) == ("worker", name)


def test_members_without_the_leader(tmp_path: Path) -> None:
    """When the leader is another, only those that were recorded are ours."""
    proc = a_machine(tmp_path, leader=777)
    assert [m.pid for m in members.of(a_record(), proc)] == [200]
    known = a_record(members=[(201, 130), (300, 98)])
    assert [m.pid for m in members.of(known, proc)] == [200, 201]
    (proc / "201" / "environ").unlink(missing_ok=True)
    (proc / "201" / "environ").write_bytes(b"A=1\0RIG_SERVER=token-1\0")
    assert [m.pid for m in members.of(a_record(), proc)] == [200, 201]


def test_members_of_another_boot(tmp_path: Path) -> None:
    """After a boot no number means anything."""
    proc = a_machine(tmp_path)
    old = a_record(boot_id="boot-0", members=[(201, 130)])
    assert members.of(old, proc) == []
    assert not members.api_alive(old, proc)


def test_tell_only_who_is_meant() -> None:
    """A pid whose start time is another gets no signal, nor one that is gone."""
    gone = members.Member(4194303, 1, "api", "x", "S", 1)
    other = members.Member(os.getpid(), 1, "api", "x", "S", 1)
    assert members.tell([gone, other], 15) == []


METRICS = """\
# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:prompt_tokens_total{engine="0"} 100.0
vllm:generation_tokens_total{engine="0"} 30.0
vllm:iteration_tokens_total_sum{engine="0"} 130.0
vllm:request_success_total{finished_reason="abort"} 9.0
vllm:odd{x="y"} what
process_cpu_seconds_total 3.5
"""


def test_metrics() -> None:
    """Engines are added up; given-up requests are no work; others count nothing."""
    found = metrics.parse(METRICS)
    assert found == metrics.Counters(3, 4, 0.75, 100.0, 30.0, 260.0)
    assert metrics.parse("process_cpu_seconds_total 3.5\n") is None
    bare = metrics.parse("vllm:gpu_cache_usage_perc 0.1\n")
    assert bare == metrics.Counters(None, None, 0.1, None, None, None)
    odd = "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n"
    known = "vllm:gpu_cache_usage_perc 0.1\n"
    assert metrics.parse(odd) is None
    assert metrics.parse(odd + known) == bare


@pytest.mark.parametrize("text", ["", " ", "!", "!!!!", "\ufffd", "\ufffd\ufffd !"])
def test_doubtful(text: str) -> None:
    """What a model that computes NaN says, and half letters."""
    assert probe.doubtful(text)


@pytest.mark.parametrize("text", ["Paris", "!a", "0", "\n7"])
def test_not_doubtful(text: str) -> None:
    """Anything else is text."""
    assert not probe.doubtful(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("(APIServer pid=1) INFO 01-02 [a.py:1]  x  version 0.32.0", "vLLM 0.32.0"),
        ("Initializing a V1 LLM engine (v0.32.0) with config", "the engine starts"),
        ("Starting to load model /models/x...", "loading the weights"),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2",
            "loading the weights: 50 %",
        ),
        ("Loading weights took 12.50 seconds", "loaded (12.50 s)"),
        ("GPU KV cache size: 123,456 tokens", "123,456 tokens"),
        ("Capturing CUDA graphs (decode, FULL):  40%|####", "graphs: 40 %"),
        ("init engine (profile, create kv cache) took 3.19 s", "ready (3.19 s)"),
        ("INFO:     Application startup complete.", "listens"),
        ("something else", ""),
    ],
)
def test_stages(line: str, words: str) -> None:
    """Lines of real logs name how far it is."""
    assert words in loading.stage([line])


def test_follower_across_a_rotation(tmp_path: Path) -> None:
    """No line is lost or told twice when the log is renamed under the reader."""
    log = tmp_path / "a.log"
    follower = loading.Follower(log)
    assert follower.lines() == []
    log.write_text("one\ntw")
    assert follower.lines() == ["one"]
    with log.open("a") as fh:
        fh.write("o\nthree\n")
    log.rename(tmp_path / "a.log.1")
    log.write_text("four\r50%\rfive\n")
    assert follower.lines() == ["two", "three", "four", "50%", "five"]
    log.unlink()
    assert follower.lines() == []
    log.write_text("six\n")
    assert follower.lines() == ["six"]
    os.truncate(log, 0)
    assert follower.lines() == []
    log.write_text("7\n")
    assert follower.lines() == ["7"]
    assert loading.version(["x", "version 0.25.1"]) == "0.25.1"
