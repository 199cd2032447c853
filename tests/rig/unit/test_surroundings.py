# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the tests make of the surroundings that they were started in."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.rig import conftest

HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


@pytest.fixture
def ignored() -> Iterator[None]:
    """Ignore what ``nohup`` and a script's ``&`` have ignored."""
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in HEARD}
    yield
    for number, action in kept.items():
        signal.signal(number, action)


def test_nohup(ignored: None) -> None:
    """Tests below ``nohup`` can be hung up and interrupted all the same."""
    conftest.pytest_configure()
    assert [signal.getsignal(number) for number in HEARD] == [
        signal.SIG_DFL,
        signal.default_int_handler,
        signal.SIG_DFL,
    ]


def test_own_handlers_stay(ignored: None) -> None:
    """Only what is ignored is set: a handler of the runner's own stays."""
    signal.signal(signal.SIGINT, own := lambda number, frame: None)
    conftest.pytest_configure()
    assert signal.getsignal(signal.SIGINT) is own
