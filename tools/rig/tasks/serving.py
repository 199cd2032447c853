# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tasks about models and the servers that answer for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from invoke.context import Context

from tools.rig.tasks.frame import described, do, task

_SERVER = {
    "model": "the model's folder",
    "tp": "cards that share each layer (default: 2)",
    "pp": "stages of layers",
    "preset": "names with commas; alone: list them",
    "environment": "any folder with bin/python and vLLM (default: the build in force)",
    "host": "address (default: 127.0.0.1)",
    "port": "default: 8000",
    "name": "default: the model's",
    "served_name": "name for clients",
    "cards": "indexes with commas (default: free ones joined by NVLink)",
    "api_key_file": "file with the key",
    "insecure": "another address without a key",
    "drain": "seconds for running requests when it stops",
    "timeout": "seconds until ready",
}
"""Options of a server that a task plans."""

_REST = "words for vLLM; better behind --"


def _plans_a_server(body: Callable[..., None]) -> Callable[..., None]:
    """Give a task the options of a server, which it gets as one argument.

    Invoke reads options from the signature of a task, so that is where they stand.
    """

    @functools.wraps(body)
    def run(c: Context, **given: Any) -> None:
        server = {name: given.pop(name) for name in _SERVER}
        # a flag whose value is left out is True
        if server["preset"] is True:
            server["preset"] = "list"
        body(c, server, **given)

    context, _, *own = inspect.signature(body).parameters.values()
    options = [
        inspect.Parameter(
            name, context.kind, default=False if name == "insecure" else ""
        )
        for name in _SERVER
    ]
    signature = inspect.Signature([context, *options, *own])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


@task(
    help=described(
        "json",
        "profile",
        model="the model's folder",
        tp="cards that share each layer (default: 2)",
        pp="stages of layers",
        memory="GiB of one card (default: the smallest here)",
        utilisation="share of a card for vLLM (default: 0.92)",
        max_len="context that must fit",
        kv_cache_dtype="type of the cache (default: two are compared)",
        speculative="tokens predicted ahead",
        eager="without CUDA graphs",
        text_only="without vision",
        upstream="a release of vLLM serves, and not the fork",
    )
)
def capacity(
    c: Context,
    model: str = "",
    json: bool = False,
    profile: str = "",
    tp: str = "",
    pp: str = "",
    memory: str = "",
    utilisation: str = "",
    max_len: str = "",
    kv_cache_dtype: str = "",
    speculative: str = "",
    eager: bool = False,
    text_only: bool = False,
    upstream: bool = False,
) -> None:
    """Tell whether a model fits on cards, and how much context, from its headers."""
    words = {k: v for k, v in locals().items() if k not in ("c", "json", "model")}
    cache, its = words.pop("kv_cache_dtype"), words.pop("profile")
    do(lambda console: _serving().capacity(console, model, cache, its, **words), json)


@task(
    name="serve-tp2",
    optional=["preset"],
    help=described(
        "json",
        "profile",
        "source",
        **_SERVER,
        foreground="stay; Ctrl-C stops it",
        show="show the plan, start nothing",
        rest=_REST,
    ),
)
@_plans_a_server
def serve_tp2(
    c: Context,
    server: dict[str, Any],
    foreground: bool = False,
    show: bool = False,
    rest: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Start an OpenAI-compatible server; return when a token has come out of it."""
    typed = {**server, "foreground": foreground, "show": show}
    cli = {"profile": profile, "source": source}
    do(lambda console: _serving().serve_tp2(console, typed, rest, **cli), json)


@task(
    name="serve-status",
    help=described(
        "json",
        name="one server (default: all)",
        no_probe="read counters only; have no token made",
        watch="look again every so many seconds",
    ),
)
def serve_status(
    c: Context,
    name: str = "",
    no_probe: bool = False,
    watch: str = "",
    json: bool = False,
) -> None:
    """Say how each server is: ready, draining, degraded, hung or dead, and why."""
    words = (name, no_probe, watch, json)
    # who watches gets a document for each look, and none at the end
    do(lambda console: _serving().serve_status(console, *words), json and not watch)


@task(
    name="serve-stop",
    help=described(
        "json",
        name="which (default: the only one)",
        drain="seconds that running requests get",
    ),
)
def serve_stop(c: Context, name: str = "", drain: str = "", json: bool = False) -> None:
    """Stop a server's whole tree, and see that each card's memory is back."""
    do(lambda console: _serving().serve_stop(console, name, drain), json)


@task(
    name="serve-logs",
    auto_shortflags=True,
    help={
        "name": "which (default: the only one)",
        "follow": "go on until the server ends",
        "lines": "how many of the end",
    },
)
def serve_logs(
    c: Context, name: str = "", follow: bool = False, lines: str = ""
) -> None:
    """Print the end of a server's log."""
    do(lambda console: _serving().serve_logs(console, name, follow, lines))


@task(
    name="serve-unit",
    optional=["preset"],
    help=described(
        "json",
        "profile",
        "source",
        **_SERVER,
        look="what the timer calls: 0 when the server must be restarted",
        user="for the user's own systemd",
        run_as="whose processes they are (default: who owns the state root)",
        output="folder for the files (default: one in the state root)",
        rest=_REST,
    ),
)
@_plans_a_server
def serve_unit(
    c: Context,
    server: dict[str, Any],
    look: bool = False,
    user: bool = False,
    run_as: str = "",
    output: str = "",
    rest: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Write systemd units for a server, and a timer that restarts it when it hangs."""
    how = {"look": look, "user": user, "run_as": run_as, "output": output}
    cli = {"profile": profile, "source": source}
    do(lambda console: _serving().serve_unit(console, server, rest, **how, **cli), json)


@task(
    name="serve-router",
    iterable=["server", "model"],
    help=described(
        "json",
        "profile",
        "source",
        kind="llama-swap, litellm or nginx",
        server="a server that runs (repeatable; default: all)",
        model="a model's folder, for llama-swap (repeatable)",
        tp="cards that share each layer of a model; with commas one for each "
        "(default: as its record says, else 2)",
        environment=_SERVER["environment"],
        name="names the files",
        host=_SERVER["host"],
        port="default: 8080",
        api_key_file="file with the key that clients send",
        insecure="another address without a key",
        certificate="for TLS, with nginx",
        certificate_key="for TLS, with nginx",
        memory="GiB of a card, to share it among models",
        idle="seconds after which llama-swap unloads a model",
        output="folder for the files (default: one in the state root)",
    ),
)
def serve_router(
    c: Context,
    server: list[str],
    model: list[str],
    kind: str = "",
    tp: str = "",
    environment: str = "",
    name: str = "",
    host: str = "",
    port: str = "",
    api_key_file: str = "",
    insecure: bool = False,
    certificate: str = "",
    certificate_key: str = "",
    memory: str = "",
    idle: str = "",
    output: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Put several servers behind one endpoint: llama-swap, LiteLLM or nginx."""
    typed = dict(locals())
    cli = {"profile": profile, "source": source}
    words = (kind, server, model, typed)
    do(
        lambda console: _serving().serve_router(console, *words, output=output, **cli),
        json,
    )


def _serving() -> Any:
    """Import what tasks about servers do; listing tasks imports nothing."""
    from tools.rig.steps import serving

    return serving
