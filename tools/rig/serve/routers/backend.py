# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A server as a router sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base import redact
from tools.rig.base.errors import UsageError
from tools.rig.serve import ports, safe
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord

KEY = "RIG_ROUTER_KEY"
"""The variable by which a router gets the key that clients must send."""

USUAL = 8080
"""The port of a router where none is named."""


@dataclass(frozen=True)
class Backend:
    """One server.

    Attributes
    ----------
    name
        The name that clients ask for.
    served_name
        The name that the server knows itself by.
    host, port
        Where it listens.
    model
        The model's folder.
    api_key_file
        Holds the key that it wants; None: none.
    argv, env, unset
        Its command, and what that adds to and takes from the environment; empty where
        the server runs already and is not started by the router.
    cards, tensor
        The cards that it uses, and how many of them share each layer.
    drain_s
        Seconds that it lets requests finish.
    runs
        Whether it was started, and has its port, by its record.
    """

    name: str
    served_name: str
    host: str
    port: int
    model: Path
    api_key_file: Path | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    cards: tuple[int, ...] = ()
    tensor: int = 1
    drain_s: int = 0
    runs: bool = False

    @property
    def address(self) -> str:
        """Host and port as a URL has them, reached from this machine."""
        return ports.joined(ports.from_here(self.host), self.port)

    @property
    def key_variable(self) -> str:
        """The variable by which a router gets this server's key."""
        return f"RIG_KEY_{re.sub(r'[^A-Z0-9]', '_', self.name.upper())}"


def of_plan(plan: ServePlan, name: str = "") -> Backend:
    """Return the server that a plan makes; clients ask for `name` if that is given."""
    return Backend(
        name=name or plan.served_name,
        served_name=plan.served_name,
        host=plan.host,
        port=plan.port,
        model=plan.model,
        api_key_file=plan.api_key_file,
        argv=plan.argv,
        env=plan.env,
        unset=plan.unset,
        cards=plan.cards,
        tensor=plan.tensor,
        drain_s=plan.drain_s,
    )


def of_record(record: ServerRecord) -> Backend:
    """Return the server that runs already, as its record describes it."""
    plan: Mapping[str, Any] = record.plan
    return Backend(
        name=record.served_name,
        served_name=record.served_name,
        host=record.host,
        port=record.port,
        model=Path(record.model),
        api_key_file=Path(record.api_key_file) if record.api_key_file else None,
        argv=tuple(map(str, plan.get("argv", ()))),
        env={str(k): str(v) for k, v in dict(plan.get("env", {})).items()},
        unset=tuple(map(str, plan.get("unset", ()))),
        cards=tuple(record.cards),
        tensor=int(plan.get("tensor", 1)),
        drain_s=record.drain_s,
        runs=True,
    )


def check(backends: Iterable[Backend], *, running: bool = True) -> None:
    """Refuse what no router can serve.

    Parameters
    ----------
    running
        They listen where they say; otherwise the router gives each a port of its own.

    Raises
    ------
    UsageError
        When there is no server, when two share an address, or when a command holds a
        secret.
    """
    found = [*backends]
    if not found:
        raise UsageError(
            "there is no server to route to", hint="invoke serve-tp2 --model PATH"
        )
    seen: dict[str, Backend] = {}
    for one in found:
        other = seen.setdefault(one.address, one)
        if running and other is not one:
            raise UsageError(
                f"{one.name} and {other.name} both listen at {one.address}",
                hint=f"--port {one.port + 1}",
            )
        shown = [f"{k}={v}" for k, v in one.env.items()]
        whole = [*one.argv, *shown]
        if redact.argv(whole) != whole or redact.MASK in " ".join(whole):
            raise UsageError(
                f"a secret would stand in the file: the command of {one.name} holds it",
                hint="--api-key-file FILE",
            )


def check_port(
    host: str, port: int, backends: Iterable[Backend], first: int = 0
) -> None:
    """Refuse a router's address that one of its own servers has, or would get.

    Its own program may not see it: a configuration is read without listening.

    Parameters
    ----------
    first
        The first of the ports that the router gives to servers; 0: they have theirs.

    Raises
    ------
    UsageError
        When it is taken.
    """
    found = [*backends]
    given = range(first, first + len(found)) if first else range(0)
    taken = {*given, *(one.port for one in found)}
    other = next(n for n in (USUAL, *range(port + 1, 65536), 1024) if n not in taken)
    if port in given:
        raise UsageError(
            f"the router cannot listen at port {port}: it gives ports from {first} on "
            "to its models",
            hint=f"--port {other}",
        )
    for one in found:
        if port == one.port and (one.runs or not first) and _meet(host, one.host):
            raise UsageError(
                f"the router cannot listen at port {port} of {host}: {one.name} "
                "listens there",
                hint=f"--port {other}",
            )


def _meet(one: str, other: str) -> bool:
    """Say whether two listeners would want the same address."""
    hosts = {host or "0.0.0.0" for host in (one, other)}
    # who listens at all IPv6 addresses mostly has the others as well
    if len(hosts) == 1 or "::" in hosts:
        return True
    if "localhost" in hosts:
        [address] = hosts - {"localhost"}
        return address == "0.0.0.0" or safe.is_loopback(address)
    return "0.0.0.0" in hosts and not any(":" in host for host in hosts)


def with_option(argv: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """Return a command with an option's value put in place, or at its end."""
    made, done = [*argv], False
    for at, word in enumerate(made):
        if word == option and at + 1 < len(made):
            made[at + 1], done = value, True
        elif word.startswith(f"{option}="):
            made[at], done = f"{option}={value}", True
    return tuple(made) if done else (*argv, option, value)


def has_option(argv: tuple[str, ...], option: str) -> bool:
    """Say whether a command has that option."""
    return any(word == option or word.startswith(f"{option}=") for word in argv)
