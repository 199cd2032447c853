# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Naming, listing, watching and reading servers, with programs that answer like one."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.rig.support.serve_desk import Desk
from tests.rig.support.serve_desk import desk as desk
from tools.rig.base.errors import (
    ExitCode,
    InUseError,
    StepFailed,
    UsageError,
)
from tools.rig.serve import members
from tools.rig.serve import record as records
from tools.rig.serve.states import State
from tools.rig.steps.serve_logs import serve_logs
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

pytestmark = pytest.mark.allow_process


def test_logs_are_followed(desk: Desk) -> None:
    """What comes after is printed too, until the server ends."""
    desk.serve(desk.plan())
    record = desk.record()
    assert members.names(desk.root)[record.pid] == "one"
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
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        serve_status(desk.console, desk.root, watch_s=0.1)
    assert desk.said.getvalue().count("no server is recorded") > 1


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
