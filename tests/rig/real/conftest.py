# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the tests of whole builds share: one workshop with a finished first build."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator

import pytest
from filelock import FileLock

from tests.rig.support.toolkit import cache_folder
from tests.rig.support.workshop import Workshop


@pytest.fixture(scope="session", autouse=True)
def signals_arrive() -> None:
    """Undo what nohup, or a shell's background job, made of our signals.

    A signal that is ignored here is ignored in every process that a test starts, and
    Python leaves it so.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shop() -> Iterator[Workshop]:
    """Return a workshop in which the sample is built.

    It always lies in the same place: with other paths the compile cache would know
    nothing.
    """
    folder = cache_folder() / "workshop"
    with FileLock(str(cache_folder() / "workshop.lock")):
        shutil.rmtree(folder, ignore_errors=True)
        made = Workshop(folder)
        got = made.invoke("build-sm70")
        assert got.returncode == 0, got.stderr
        (folder / "first.txt").write_text(got.stderr)
        yield made
        shutil.rmtree(folder)
