# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Commands whose streams are closed or full, or read by nobody."""

from __future__ import annotations

import shlex

import pytest

from tests.rig.support.newcomer import user as user
from tests.rig.support.workshop import Workshop

pytestmark = pytest.mark.real


class TestStreams:
    """Streams that are closed or full, or that nobody reads."""

    @pytest.mark.parametrize(
        "how",
        ["2>&-", "2>/dev/full", ">&-", "<&- >&- 2>&-", ">/dev/full", "2>&1 | true"],
    )
    @pytest.mark.parametrize(("task", "code"), [("builds", 0), ("verify", 3)])
    def test_exit_code(self, user: Workshop, task: str, code: int, how: str) -> None:
        """A task does its work, and its exit code tells how that went."""
        line = f"set -o pipefail; {shlex.join(user.argv(task))} {how}"
        got = user.run(["bash", "-c", line])
        assert got.returncode == code, got.stderr
        assert "Traceback" not in got.stderr and "unexpected" not in got.stderr
        assert not (user.home / ".local" / "state" / "1cat-rig" / "crashes").exists()

    @pytest.mark.parametrize("how", [">&-", ">/dev/full", "| true", ">&- 2>&-"])
    def test_data(self, user: Workshop, how: str) -> None:
        """A document that was not delivered is a failure, said in one line."""
        line = f"set -o pipefail; {shlex.join(user.argv('builds', '--json'))} {how}"
        got = user.run(["bash", "-c", line])
        assert got.returncode == 1, got.stderr
        assert "Traceback" not in got.stderr
        if "2>" not in how:
            assert "error: cannot write the result to stdout: " in got.stderr
