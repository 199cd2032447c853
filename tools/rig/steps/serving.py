# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What each task about servers does, from typed words to a result."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.paths import given_path, typed_path
from tools.rig.base.state import StateRoot
from tools.rig.builds import profile as profiles
from tools.rig.builds.place import GIB
from tools.rig.builds.target import HERE
from tools.rig.serve.plan import READY_S, ServePlan
from tools.rig.steps import commands
from tools.rig.steps.scene import Scene


def capacity(
    console: Console, model: str, cache: str, profile: str, **words: Any
) -> Any:
    """Tell whether a model fits on cards, from its headers alone."""
    from tools.rig.steps import capacity as step

    if not model:
        raise UsageError("which model?", hint="invoke capacity --model FOLDER")
    sm = min(profiles.load(profile).sms) if profile else 70
    # whole, since hints name it in commands: a name may begin with a dash
    folder = typed_path(model)
    options = step.options_for(**words)
    return step.capacity(console, folder, options, cache_dtype=cache, sm=sm)


def serve_tp2(console: Console, typed: Mapping[str, Any], rest: str, **cli: str) -> Any:
    """Plan a server, look whether it can start, and start it."""
    from tools.rig.steps import serve_tp2 as step

    found, root = _stage(console, typed, cli)
    return step.serve_tp2(console, found, root, **typed, rest=_words(rest))


def serve_status(
    console: Console, name: str, no_probe: bool, watch: str, as_json: bool = False
) -> Any:
    """Look at all servers, or at one; watching, each look is a line of JSON."""
    from tools.rig.steps import serve_status as step

    every = _seconds("watch", watch)
    if watch and not every:
        raise UsageError("--watch 0 would never rest", hint="--watch 2")
    root = _root_of_servers()
    return step.serve_status(
        console, root, name, deep=not no_probe, watch_s=every, as_json=as_json
    )


def serve_stop(console: Console, name: str, drain: str) -> Any:
    """Stop one server's whole tree and see its memory come back."""
    from tools.rig.steps import serve_stop as step

    seconds = _seconds("drain", drain) if drain else None
    return step.serve_stop(console, _root_of_servers(), name, drain=seconds)


def serve_logs(console: Console, name: str, follow: bool, lines: str) -> Any:
    """Print the end of a server's log, and follow it."""
    from tools.rig.steps import serve_logs as step

    count = int(_seconds("lines", lines)) if lines else step.LINES
    step.serve_logs(_root_of_servers(), name, follow=follow, lines=count)
    return commands.Data(None)


def serve_unit(
    console: Console,
    typed: Mapping[str, Any],
    rest: str,
    *,
    look: bool,
    user: bool,
    run_as: str,
    output: str,
    **cli: str,
) -> Any:
    """Write a server's units; or be the look that its timer calls for."""
    from tools.rig.steps import serve_look
    from tools.rig.steps import serve_unit as step
    from tools.rig.steps.serve_tp2 import LIST

    if look:
        root = _root_of_servers()
        return serve_look.serve_look(console, root, _named(root, str(typed["name"])))
    if typed.get("preset") == LIST:
        # a list is no plan that a unit could be made of
        return serve_tp2(console, typed, rest, **cli)
    plan, root = _planned(console, typed, rest, cli)
    options = step.typed({**typed, **cli})
    file = given_path(output)
    patience = int(_seconds("timeout", str(typed.get("timeout") or "")))
    return step.serve_unit(
        console,
        plan,
        root,
        options,
        plan.rest,
        start=step.launcher(HERE),
        user=user,
        run_as=run_as,
        output=file,
        # loads that fail slowly must still be too many in its window
        ready_s=patience or READY_S,
    )


def serve_router(
    console: Console,
    kind: str,
    servers: Sequence[str],
    models: Sequence[str],
    typed: Mapping[str, Any],
    *,
    output: str,
    **cli: str,
) -> Any:
    """Write a router's configuration for servers that run, or for models."""
    from tools.rig.serve import capacity as cards
    from tools.rig.serve import ports
    from tools.rig.serve.routers import backend
    from tools.rig.steps import serve_router as step

    if not kind:
        kinds = ", ".join(step.KINDS)
        raise UsageError(f"which router: {kinds}?", hint="invoke --help serve-router")
    usual = backend.USUAL
    wish = step.Wish(
        kind,
        name=typed["name"],
        host=typed["host"] or "127.0.0.1",
        port=ports.number("port", typed["port"] or str(usual), usual),
        api_key_file=given_path(typed["api_key_file"]),
        insecure=typed["insecure"],
        certificate=given_path(typed["certificate"]),
        certificate_key=given_path(typed["certificate_key"]),
        memory=int(_gib("memory", typed["memory"]) * GIB * cards.USABLE),
        idle_s=int(_seconds("idle", typed["idle"])),
    )
    root = _root_of_servers() if servers or not models else None
    backends = []
    ranks = step.ranks(models, typed["tp"], commands.root_in_force())
    for number, (model, tensor) in enumerate(zip(models, ranks, strict=True)):
        # each model would have a port of its own
        options = {
            "model": model,
            "tp": tensor,
            "environment": typed["environment"],
            "port": str(ports.USUAL + number),
        }
        plan, root = _planned(console, options, "", cli)
        backends.append(backend.of_plan(plan))
    assert root is not None
    if servers or not models:
        backends += step.running(root, servers)
    file = given_path(output)
    return step.serve_router(console, root, backends, wish, output=file)


def _stage(
    console: Console, typed: Mapping[str, Any], cli: dict[str, str]
) -> tuple[Scene | None, StateRoot]:
    """Return the scene, where the environment comes from a checkout, and the root."""
    known = commands.root_in_force()
    alone = typed.get("environment") or typed.get("preset") == "list"
    if known is not None and alone:
        return None, known
    found = commands.scene(console, cli, lay_out=False, python=False)
    return found, known or found.root


def _planned(
    console: Console, typed: Mapping[str, Any], rest: str, cli: dict[str, str]
) -> tuple[ServePlan, StateRoot]:
    """Return the plan of a server that is not started now."""
    from tools.rig.serve import preflight, probe
    from tools.rig.steps import serve_tp2 as step

    plans: list[ServePlan] = []

    def keep(console: Console, plan: ServePlan, root: StateRoot, **how: Any) -> None:
        plans.append(plan)

    # another server, or an earlier life of this one, may have port and cards now
    machine = preflight.Seams(
        port=lambda host, port: None, in_use=lambda card, share: None
    )
    seams = replace(step.Seams(), start=keep, machine=machine)
    found, root = _stage(console, typed, cli)
    # who starts it later, a unit or a router, has no key of this shell
    env = {k: v for k, v in os.environ.items() if k != probe.KEY}
    words = _words(rest)
    step.serve_tp2(console, found, root, **typed, rest=words, env=env, seams=seams)
    return plans[0], root


def _root_of_servers() -> StateRoot:
    known = commands.root_in_force()
    if known is None:
        raise UsageError(
            "no server was ever started here", hint="invoke serve-tp2 --help"
        )
    return known


def _named(root: StateRoot, name: str) -> str:
    """Return the name of a server; a look that restarts one never guesses which."""
    from tools.rig.serve import record as records

    if name:
        return name
    known = [one.name for one in records.listing(root)]
    there = ": " + " or ".join(known) if known else ""
    raise UsageError(
        f"which server{there}?",
        hint=f"invoke serve-unit --look --name {shlex.quote([*known, 'NAME'][0])}",
    )


def _words(rest: str) -> list[str]:
    """Return what stood behind ``--``, or was typed as one text.

    Raises
    ------
    UsageError
        When its quotes do not close.
    """
    try:
        if rest.startswith("["):
            return [str(word) for word in json.loads(rest)]
        return shlex.split(rest)
    except ValueError:
        raise UsageError(
            f"--rest {rest} cannot be taken apart into words",
            hint="invoke serve-tp2 --model FOLDER -- --max-model-len 8192",
        ) from None


def _gib(flag: str, word: str) -> float:
    from tools.rig.serve import amounts

    return amounts.number(flag, word or "0", 999_999, hint=f"--{flag} 16")


def _seconds(flag: str, word: str) -> float:
    from tools.rig.serve import amounts

    return amounts.number(flag, word or "0", 999_999, hint=f"--{flag} 60")
