# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Locks and leases of others: who holds what a command wants is named."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.rig.support.newcomer import BUILD, refused
from tests.rig.support.workshop import Workshop
from tools.rig.builds.target import HERE
from tools.rig.guard import lease
from tools.rig.guard.lock import BuildLock, lock_path

pytestmark = pytest.mark.real


class TestSomebodyElse:
    """Locks and leases of others."""

    def test_dead_holder(self, shop: Workshop) -> None:
        """A holder that was killed is named, and its lock taken over."""
        code = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from tools.rig.guard.lock import BuildLock\n"
            "lock = BuildLock(Path(sys.argv[1]), Path(sys.argv[2]), 'a build')\n"
            "lock.__enter__()\n"
            "os.kill(os.getpid(), 9)\n"
        )
        argv = [sys.executable, "-c", code, str(shop.environment), str(shop.sample)]
        shop.run(argv, PYTHONPATH=str(HERE))
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert "a command that died held the lock" in got.stderr

    def test_living_holder(self, shop: Workshop) -> None:
        """A holder that lives is named with pid and command."""
        with BuildLock(shop.environment, None, "somebody's build"):
            got = shop.invoke("venv-local")
        refused(got, 4, f"PID {os.getpid()} of", "somebody's build")
        assert lock_path(shop.environment).exists()

    def test_other_host(self, shop: Workshop) -> None:
        """A lease of another host is never removed; how to is said."""
        [beside, _] = lease.places(shop.sample)
        text = lease.dumped(lease.holder("a build"))
        other = {**json.loads(text), "host": "node7", "machine": "m", "boot": "b"}
        beside.write_text(json.dumps(other))
        try:
            refused(shop.invoke(*BUILD), 4, "another host, node7", str(beside))
            assert json.loads(beside.read_text()) == other
        finally:
            beside.unlink()
