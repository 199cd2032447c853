# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A tree of processes of our own, and the environment that a scan looks for in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakeproc import FakeProc, mount_line
from tools.rig.guard.places import Place
from tools.rig.guard.scan import ScanResult, User, scan
from tools.rig.guard.targets import FileFact, Targets

VENV = Path("/srv/venvs/one")
CHECKOUT = Path("/srv/src/fork")
DEVICE = b"fe:00"


def targets(**changes: Any) -> Targets:
    """Return an environment and a checkout with one library each."""
    one = FileFact(b"/srv/venvs/one/lib/one.so", 1, (1, 501))
    linked = FileFact(b"/srv/venvs/one/lib/linked.so", 3, (1, 502))
    own = FileFact(b"/srv/src/fork/vllm/_C.so", 1, (1, 123456789))
    plain = Targets(
        venv=VENV,
        checkout=CHECKOUT,
        files={DEVICE: {b"501": one, b"502": linked, b"123456789": own}},
        spellings=(b"/srv/venvs/one", b"/srv/src/fork/.venv"),
        others=(b"/srv/src/fork/.old",),
        venv_place=Place("254:0", b"/srv/venvs/one"),
        checkout_place=Place("254:0", b"/srv/src/fork"),
    )
    return replace(plain, **changes)


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    """Give a tree with init and ourselves, whose root is mounted once."""
    tree = FakeProc(tmp_path / "proc")
    line = mount_line("254:0", "/", "/")
    (tree.root / str(tree.own) / "mountinfo").write_text(line + "\n")
    return tree


def look(fake: FakeProc, wanted: Targets | None = None, **options: Any) -> ScanResult:
    """Scan the tree as its process `own`."""
    return scan(
        wanted or targets(),
        proc=fake.root,
        self_pid=fake.own,
        **options,
    )


def only(result: ScanResult) -> User:
    """Return the one user that was found."""
    (user,) = result.users
    return user
