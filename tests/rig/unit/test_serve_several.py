# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Naming, listing, watching and reading servers, with programs that answer like one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.interrupts import ctrl_c
from tests.rig.support.serve_desk import NO_CARDS, Desk
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import (
    ExitCode,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.base.state import StateRoot
from tools.rig.serve import look, members
from tools.rig.serve import record as records
from tools.rig.serve.look import ServerStatus
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.states import State
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


def test_logs_are_followed(desk: Desk) -> None:
    """What comes after is printed too, until the server ends."""
    desk.serve(desk.plan())
    record = desk.record()
    words = f"server one at port {record.port}"
    assert members.served(desk.root)[record.pid] == words
    out = io.StringIO()
    timer = threading.Timer(0.6, os.kill, (record.pid, signal.SIGTERM))
    timer.start()
    serve_logs(desk.root, "one", follow=True, out=out)
    assert "INFO version 0.99.1" in out.getvalue()
    Path(record.log).unlink()
    with pytest.raises(StepFailed, match="there is no log"):
        serve_logs(desk.root, "one", out=out)


def test_watch(desk: Desk) -> None:
    """Watching looks again and again, until Ctrl-C."""
    with ctrl_c():
        serve_status(desk.console, desk.root, watch_s=0.1)
    assert desk.said.getvalue().count("no server is recorded") > 1


_WATCH = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from typing import Any
from tools.rig.base.report import run_command
from tools.rig.base.state import StateRoot
from tools.rig.steps.serve_status import serve_status
root = StateRoot(Path(sys.argv[2]))
as_json = sys.argv[3] == "json"
sys.exit(run_command(lambda c: serve_status(c, root, watch_s=0.2, as_json=as_json)))
"""


def watcher(desk: Desk, how: str) -> subprocess.Popen[bytes]:
    """Start a process that watches."""
    repository = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", _WATCH, repository, desk.root.path, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_watch_for_programs(desk: Desk) -> None:
    """Each look is one line of JSON; Ctrl-C ends between two of them, without words."""
    with watcher(desk, "json") as proc:
        assert proc.stdout is not None and proc.stderr is not None
        lines = [proc.stdout.readline() for _ in range(3)]
        proc.send_signal(signal.SIGINT)
        lines += proc.stdout.readlines()
        said = proc.stderr.read().decode()
    assert proc.returncode == ExitCode.INTERRUPTED
    assert [json.loads(line) for line in lines] == [{"servers": []}] * len(lines)
    assert "Traceback" not in said and "interrupted" in said


@pytest.mark.parametrize("how", ["json", "words"])
def test_watch_that_nobody_reads(desk: Desk, how: str) -> None:
    """When the reader leaves, watching ends, and that is no fault."""
    with watcher(desk, how) as proc:
        stream = proc.stdout if how == "json" else proc.stderr
        assert stream is not None
        assert stream.readline()
        stream.close()
        assert proc.wait(20) == ExitCode.OK
        if how == "json":
            assert proc.stderr is not None
            assert b"Traceback" not in proc.stderr.read()


_LOGS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from typing import Any
from tools.rig.base.report import run_command
from tools.rig.base.state import StateRoot
from tools.rig.steps.serve_logs import serve_logs
root = StateRoot(Path(sys.argv[2]))
follow = sys.argv[3] == "follow"
sys.exit(run_command(lambda c: serve_logs(root, "one", follow=follow, lines=10**6)))
"""


@pytest.mark.parametrize("how", ["once", "follow"])
def test_logs_that_nobody_reads(desk: Desk, how: str) -> None:
    """A reader that has seen enough ends it, also while the server says nothing."""
    plan = desk.plan()
    desk.serve(plan)
    if how == "once":
        # more than a pipe holds
        plan.log.write_text("a line of the log\n" * 20_000)
    repository = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", _LOGS, repository, desk.root.path, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as proc:
        assert proc.stdout is not None and proc.stderr is not None
        assert proc.stdout.readline()
        proc.stdout.close()
        assert proc.wait(20) == ExitCode.OK
        assert proc.stderr.read() == b""


def test_a_broken_record_is_one_more_to_choose_from(desk: Desk) -> None:
    """Without a name nothing is stopped while a record cannot be read."""
    file = records.path_of(desk.root, "two")
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(UsageError, match=r"which one of two\?") as caught:
        serve_stop(desk.console, desk.root)
    assert caught.value.hint.startswith("mv ") and str(file) in caught.value.details[0]
    desk.serve(desk.plan())
    with pytest.raises(UsageError, match="which one of one, two") as caught:
        serve_stop(desk.console, desk.root)
    assert caught.value.hint == "--name one"
    assert members.api_alive(desk.record())
    with pytest.raises(StepFailed, match="cannot read"):
        serve_stop(desk.console, desk.root, "two")
    assert serve_stop(desk.console, desk.root, "one", ask=lambda: NO_CARDS).ended


def test_no_server_gets_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be looked at is unknown, and the others are shown."""
    real = look.look

    def broken(root: StateRoot, record: ServerRecord, **how: Any) -> ServerStatus:
        if record.name == "one":
            raise ZeroDivisionError("a bug")
        if record.name == "three":
            raise StepFailed("it is too far away")
        return real(root, record, **how)

    for name in ("one", "two", "three"):
        desk.serve(desk.plan(name=name))
    with monkeypatch.context() as patch:
        patch.setattr(look, "look", broken)
        report = serve_status(desk.console, desk.root, deep=False)
    assert report.exit_code == ExitCode.FAILED
    assert [(one.name, one.state) for one in report.servers] == [
        ("one", State.UNKNOWN),
        ("three", State.UNKNOWN),
        ("two", State.READY),
    ]
    said = desk.said.getvalue()
    assert "one is unknown: it cannot be looked at: ZeroDivisionError: a bug" in said
    assert "three is unknown: it cannot be looked at: it is too far away" in said


def test_two_and_no_name(desk: Desk) -> None:
    """With two servers one must be named; each keeps its port and its name."""
    first = desk.plan()
    desk.serve(first)
    desk.serve(desk.plan(name="two"))
    with pytest.raises(UsageError, match="which one of one, two"):
        serve_stop(desk.console, desk.root)
    with pytest.raises(UsageError, match="no server is called three") as caught:
        serve_stop(desk.console, desk.root, "three")
    assert "one, two" in caught.value.usual
    with pytest.raises(InUseError, match="called one is there already"):
        desk.serve(first)
    with pytest.raises(InUseError, match="belongs to the server one"):
        desk.serve(desk.plan(name="three", port=first.port))
    assert len(serve_status(desk.console, desk.root, deep=False).servers) == 2


def test_broken_record_keeps_its_name(desk: Desk) -> None:
    """Status names a record that was cut, and no server takes its name."""
    desk.serve(desk.plan(name="two"))
    file = records.path_of(desk.root, "one")
    file.write_text("{")
    for name in ("", "one"):
        report = serve_status(desk.console, desk.root, name, deep=False)
        assert report.exit_code == ExitCode.FAILED
        row = report.to_json()["servers"][0]
        assert (row["name"], row["state"]) == ("one", "unknown")
        assert str(file) in row["reason"]
        assert row["notes"] == [f"hint: mv {file} {file}.broken"]
    assert [s.name for s in report.servers] == ["one"]
    said = desk.said.getvalue()
    assert "one is unknown: cannot read" in said and f"hint: mv {file}" in said
    assert "no server is recorded" not in said
    with pytest.raises(InUseError, match="the name one is taken") as caught:
        desk.serve(desk.plan())
    assert caught.value.hint.startswith(f"mv {file} {file}.broken")
    assert file.read_text() == "{"
    both = serve_status(desk.console, desk.root, deep=False).servers
    assert [s.state for s in both] == [State.UNKNOWN, State.READY]
    good = serve_status(desk.console, desk.root, "two", deep=False)
    assert good.exit_code == ExitCode.OK


def test_status_without_servers(desk: Desk) -> None:
    """A root where no server was ever started has none, and that is no fault."""
    report = serve_status(desk.console, desk.root)
    assert report.exit_code == ExitCode.OK
    assert report.to_json() == {"servers": []}
    assert "no server is recorded" in desk.said.getvalue()
