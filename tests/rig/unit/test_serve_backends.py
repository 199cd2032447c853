# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The servers behind a router: their addresses, and what no router can serve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.unit_plans import ONE, OTHER, PLAN, TWO
from tools.rig.base.errors import UsageError
from tools.rig.serve import record as records
from tools.rig.serve.routers import backend, llama_swap


def test_addresses() -> None:
    """A server that listens everywhere is reached here, and IPv6 stands in brackets."""
    assert replace(ONE, host="0.0.0.0").address == "127.0.0.1:8000"
    assert replace(ONE, host="::").address == "[::1]:8000"
    assert replace(ONE, name="qwen-2.5").key_variable == "RIG_KEY_QWEN_2_5"


def test_record_and_plan_agree() -> None:
    """A server that runs is seen as its plan was."""
    record = records.of_plan(replace(PLAN, api_key_file=Path("/k")), "t", 0.0)
    planned = replace(ONE, api_key_file=Path("/k"))
    assert backend.of_record(record) == replace(planned, runs=True)


@pytest.mark.parametrize(
    ("host", "its", "meet"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "", True),
        ("10.0.0.1", "0.0.0.0", True),
        ("::", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "0.0.0.0", True),
        ("gpu-1", "0.0.0.0", True),
        ("::1", "0.0.0.0", False),
        ("10.0.0.1", "127.0.0.1", False),
        ("localhost", "10.0.0.1", False),
    ],
)
def test_a_router_at_its_own_server(host: str, its: str, meet: bool) -> None:
    """A router does not take the address of a server that it is to route to."""
    found = [replace(OTHER, host="10.9.9.9"), replace(ONE, host=its)]
    if not meet:
        backend.check_port(host, 8000, found)
    else:
        with pytest.raises(UsageError, match="qwen listens there") as told:
            backend.check_port(host, 8000, found)
        assert told.value.hint == "--port 8080"
    backend.check_port(host, 8080, found)


def test_a_router_at_ports_that_it_gives() -> None:
    """Where it gives ports to models, theirs are taken, and those of what runs now."""
    first = llama_swap.FIRST_PORT
    for port in (first, first + 1):
        with pytest.raises(UsageError, match=f"gives ports from {first} on"):
            backend.check_port("::1", port, [ONE, OTHER], first)
    for port in (first - 1, first + 2, ONE.port):
        backend.check_port(ONE.host, port, [ONE, OTHER], first)
    with pytest.raises(UsageError, match="qwen listens there"):
        backend.check_port(ONE.host, ONE.port, [replace(ONE, runs=True)], first)
    with pytest.raises(UsageError) as told:
        backend.check_port("::", 8080, [replace(ONE, port=8080), TWO])
    assert told.value.hint == "--port 8081"


def test_options_are_put_in_place() -> None:
    """An option's value is replaced in either spelling, or put at the end."""
    put = backend.with_option
    assert put(("a", "--p", "1", "b"), "--p", "2") == ("a", "--p", "2", "b")
    assert put(("--p=1",), "--p", "2") == ("--p=2",)
    assert put(("a", "--p"), "--p", "2") == ("a", "--p", "--p", "2")
    assert backend.has_option(("--p=1",), "--p")
    assert not backend.has_option(("--pp",), "--p")


def test_what_no_router_can_serve() -> None:
    """No server, one address twice, and a command with a secret are refused."""
    with pytest.raises(UsageError, match="no server"):
        backend.check([])
    with pytest.raises(UsageError, match="both listen"):
        backend.check([ONE, replace(OTHER, port=8000)])
    backend.check([ONE, replace(OTHER, port=8000)], running=False)
    for bad in (
        replace(ONE, argv=("x", "--api-key", "sesame")),
        replace(ONE, env={"HF_TOKEN": "sesame"}),
    ):
        with pytest.raises(UsageError, match="secret"):
            backend.check([bad])
