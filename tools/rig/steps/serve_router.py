# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-router``: one endpoint for several servers, by routers of others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.state import StateRoot
from tools.rig.serve import members, probe, router_check, safe, shares
from tools.rig.serve import model as models
from tools.rig.serve import record as records
from tools.rig.serve.capacity import Options
from tools.rig.serve.record import ServerRecord
from tools.rig.serve.router_check import Checked
from tools.rig.serve.routers import backend, llama_swap
from tools.rig.serve.routers.backend import Backend
from tools.rig.serve.server import plain_name
from tools.rig.serve.shares import Shares, Tenant
from tools.rig.steps import routing
from tools.rig.steps.routing import KINDS as KINDS
from tools.rig.steps.routing import Routed as Routed
from tools.rig.steps.routing import Wish as Wish


def running(
    root: StateRoot,
    names: Sequence[str] = (),
    alive: Callable[[ServerRecord], bool] = members.api_alive,
) -> list[Backend]:
    """Return the servers that run, or those of these names, which may come back.

    A dead one that nobody named may have the port of one that lives.

    Parameters
    ----------
    alive
        Says whether a recorded server runs.

    Raises
    ------
    UsageError
        When there is none of a name.
    """
    found = {one.name: one for one in records.listing(root)}
    for name in names:
        if name not in found:
            raise UsageError(f"no server is called {name}", hint="invoke serve-status")
    chosen = names or [name for name, one in found.items() if alive(one)]
    return [backend.of_record(found[name]) for name in chosen]


def ranks(models: Sequence[str], typed: str, root: StateRoot | None) -> list[str]:
    """Return for each model, as typed, how many cards share its layers.

    Parameters
    ----------
    typed
        One number for all, or one for each with commas; empty: what a server of that
        model was started with, by its record, and "" where there is none.
    root
        Where the records are; None: there are none.

    Raises
    ------
    UsageError
        When there are neither one number nor as many as models.
    """
    if typed and models:
        numbers = [word.strip() for word in typed.split(",")]
        if len(numbers) == 1:
            return numbers * len(models)
        if len(numbers) != len(models):
            raise UsageError(
                f"--tp has {len(numbers)} numbers for {len(models)} models",
                hint=f"--tp {','.join(['2'] * len(models))}",
            )
        return numbers
    known = (
        {one.model: one for one in map(backend.of_record, records.listing(root))}
        if root is not None
        else {}
    )
    real = {Path(os.path.realpath(path)): one for path, one in known.items()}
    found = []
    for model in models:
        its = real.get(Path(os.path.realpath(os.path.expanduser(model))))
        found.append(str(its.tensor) if its is not None else "")
    return found


def serve_router(
    console: Console,
    root: StateRoot,
    backends: Sequence[Backend],
    wish: Wish,
    *,
    output: Path | None = None,
    check: Callable[[Path], Checked] = router_check.nginx_site,
    share: Callable[..., Shares] | None = None,
) -> Routed:
    """Write a router's configuration, and have its own program read it.

    Parameters
    ----------
    backends
        See :func:`running`, and :func:`tools.rig.serve.routers.backend.of_plan`.
    output
        A folder for the files instead of one in the state root.
    check
        What reads an nginx site.
    share
        What plans shares; :func:`plan_shares` when None.

    Raises
    ------
    UsageError
        For a router that is not known, and where other machines would be let in without
        a key.
    StepFailed
        When a file cannot be written.
    """
    _check(wish)
    notes = _of_key(wish.api_key_file)
    starts = wish.kind == "llama-swap"
    backend.check(backends, running=not starts)
    first = llama_swap.FIRST_PORT if starts else 0
    backend.check_port(wish.host, wish.port, backends, first)
    # as a whole path: the check reads it from a folder of its own
    folder = output.absolute() if output else root.make(root.path / "routers")
    label = plain_name(wish.name or backends[0].name)
    planned = None
    if wish.memory:
        planned = (share or plan_shares)(backends, wish.memory)
    if wish.kind == "llama-swap":
        done = routing.write_llama_swap(
            backends, wish, folder / f"{label}.llama-swap.yaml", planned
        )
    elif wish.kind == "litellm":
        done = routing.write_litellm(
            backends, wish, folder / f"{label}.litellm.yaml", planned
        )
    else:
        done = routing.write_nginx(backends, wish, folder / f"rig-{label}.conf", check)
    done = replace(done, notes=(*done.notes, *notes))
    _show(console, done)
    return done


def plan_shares(backends: Sequence[Backend], memory: int) -> Shares:
    """Return the shares of the models that would stay on the same cards together.

    Parameters
    ----------
    memory
        Bytes that a card gives to programs.

    Raises
    ------
    UsageError
        When they do not all use the same cards.
    RigError
        When a model's folder does not say enough.
    """
    if len({(one.cards, one.tensor) for one in backends}) > 1:
        raise UsageError(
            "shares are planned for models on the same cards",
            usual="Models on cards of their own need none.",
            hint="leave --memory out",
        )
    tenants = [
        Tenant(one.name, models.read(one.model), Options(memory, tensor=one.tensor))
        for one in backends
    ]
    return shares.plan(tenants)


def _check(wish: Wish) -> None:
    if wish.kind not in KINDS:
        raise UsageError(
            f"there is no router {wish.kind!r} here",
            usual=f"There are: {', '.join(KINDS)}.",
            hint="--kind litellm",
        )
    if wish.certificate and wish.kind != "nginx":
        raise UsageError(
            "TLS is nginx's work here", hint="invoke serve-router --kind nginx"
        )
    if not (safe.is_loopback(wish.host) or wish.api_key_file or wish.insecure):
        raise UsageError(
            f"everybody who reaches {wish.host} could use the models",
            usual="Another address than this machine's own wants a key.",
            hint="--api-key-file FILE, or --insecure",
        )


def _of_key(file: Path | None) -> list[str]:
    """Return what is to be said of the file of the clients' key.

    Raises
    ------
    UsageError
        When there is no key in it.
    """
    found = [*safe.of_key(file)]
    if found and file is not None and not probe.read_key(file):
        raise UsageError(found[0].what, hint=found[0].hint)
    return [f"{problem.what}: {problem.hint}" for problem in found]


def _show(console: Console, done: Routed) -> None:
    console.say(f"  models: {', '.join(done.models)}")
    for file in done.files:
        console.say(f"  {file}")
    for problem in done.problems:
        console.mark("fail", problem)
    if done.unknown:
        console.mark("unknown", done.unknown)
    elif not done.problems:
        console.mark("ok", "its own program finds nothing wrong")
    for note in done.notes:
        console.say(f"note: {note}")
    console.say("to start it:")
    for line in done.start:
        console.say(f"  {line}")
