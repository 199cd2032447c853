# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What systemd's analyser is asked, and what this machine's systemd is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base.process import NOT_STARTED
from tools.rig.host import systemd
from tools.rig.host.systemd import Systemd
from tools.rig.serve import unit_check


def analysed(fp: FakeProcess, files: Sequence[Path], user: bool, said: str) -> None:
    """Let the analyser say something of all files, and exposures of services."""
    scope = ["--user"] if user else []
    names = [os.fspath(f) for f in files]
    fp.register(
        ["systemd-analyze", *scope, "verify", "--man=no", *names],
        returncode=1 if said else 0,
        stderr=said,
    )
    words = ["security", "--no-pager", "--offline=true"]
    fp.register(
        ["systemd-analyze", *scope, *words, names[0]],
        stdout="→ Overall exposure level for a.service: 4.2 MEDIUM\n",
    )


@pytest.mark.parametrize("user", [False, True])
def test_analyser_is_asked(fp: FakeProcess, user: bool) -> None:
    """Both questions are put, and only lines about our files are our problems."""
    files = [Path("/u/a.service"), Path("/u/a.timer")]
    analysed(fp, files, user, "/u/a.service:3: Unknown key\nother.service: old\n")
    got = unit_check.check(files, user=user, limit=4.0)
    assert got.exposure == {"a.service": 4.2}
    assert got.problems == (
        "/u/a.service:3: Unknown key",
        "a.service: exposure 4.2, above 4.0",
    )


def test_analyser_that_fails_as_a_whole(fp: FakeProcess) -> None:
    """A failure that names none of our files is a problem all the same."""
    fp.register(["systemd-analyze", fp.any()], returncode=1, stderr="broken\n")
    fp.register(["systemd-analyze", fp.any()], returncode=1, stderr="no such option\n")
    got = unit_check.check([Path("/u/a.service")], user=False, limit=4.0)
    assert got.problems == ("broken",)
    assert "does not tell" in got.unknown


def test_no_analyser(fp: FakeProcess) -> None:
    """Without an analyser the units are unread, which is told."""
    fp.register(["systemd-analyze", fp.any()], returncode=NOT_STARTED)
    got = unit_check.check([Path("/u/a.service")], user=False, limit=4.0)
    assert (got.problems, bool(got.unknown)) == ((), True)


def test_machine_is_read(fp: FakeProcess, tmp_path: Path) -> None:
    """Read are the version, whether it runs the machine, and what users may do."""
    fp.register(["systemctl", "--version"], stdout="systemd 255 (255.4)\n+PAM\n")
    switch = tmp_path / "user/max_user_namespaces"
    switch.parent.mkdir()
    switch.write_text("0\n")
    got = systemd.read(tmp_path, tmp_path)
    assert (got.booted, got.version) == (True, 255)
    assert got.no_namespaces.endswith("is 0")
    switch.write_text("1000\n")
    fp.register(["systemctl", "--version"], returncode=1)
    assert systemd.read(tmp_path / "none", tmp_path) == Systemd(False, None, "")
