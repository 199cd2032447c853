# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A configuration of llama-swap: models that do not fit at once, started when asked.

Facts from its ``config-schema.json`` and ``config.example.yaml`` (August 2026):
``cmd`` is split like a shell does, without one; ``${NAME}`` is a macro everywhere, and
``${env.NAME}`` a variable of its own environment; what is not named in a group is
unloaded when another model is asked for; a model that is unloaded gets SIGTERM and,
after ``unloadTimeout``, SIGKILL, which would leave an engine behind.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.serve import stop
from tools.rig.serve.plan import READY_S
from tools.rig.serve.routers import yaml
from tools.rig.serve.routers.backend import KEY as KEY
from tools.rig.serve.routers.backend import Backend, has_option, with_option

FIRST_PORT = 5800
"""The first of the ports that it gives to models."""

PARALLEL = 256
"""Requests of a model at once; llama-swap's own limit of 10 would answer 429 long
before vLLM is busy."""

_UTILISATION = "--gpu-memory-utilization"


def config(
    backends: Sequence[Backend],
    *,
    key: bool = False,
    shares: Mapping[str, float] | None = None,
    idle_s: int = 0,
    listen: str = "127.0.0.1:8080",
) -> str:
    """Return the configuration.

    Parameters
    ----------
    key
        Clients must send a key, which llama-swap reads from its variable
        ``RIG_ROUTER_KEY``.
    shares
        The share of the cards' memory for each model, by name: they fit together and
        stay. None: one at a time.
    idle_s
        Seconds without a request after which a model is unloaded; 0: never.
    listen
        Where it is to listen, which its file cannot say.

    Raises
    ------
    UsageError
        When a name is there twice, or a command cannot be written down.
    """
    models = {}
    for one in backends:
        if one.name in models:
            raise UsageError(
                f"two models are called {one.name}",
                usual="llama-swap runs one server of a name; replicas are for nginx.",
                hint="invoke serve-router --kind nginx",
            )
        models[one.name] = _model(one, shares, idle_s)
    data: dict[str, Any] = {
        # its own 120 seconds are for small models
        "healthCheckTimeout": READY_S,
        "unloadTimeout": int(stop.GRACE_S) + max(one.drain_s for one in backends) + 5,
        "startPort": FIRST_PORT,
        "logLevel": "info",
    }
    if key:
        data["apiKeys"] = [f"${{env.{KEY}}}"]
    data["models"] = models
    if shares is not None:
        together = {"swap": False, "exclusive": False, "members": [*models]}
        data["groups"] = {"together": together}
    head = [
        "Written by serve-router for llama-swap.",
        "",
        f"Run it: {_shown(key, listen)}",
    ]
    return yaml.document(data, head)


def command(file: str, listen: str) -> list[str]:
    """Return how it is started; without an address it would listen everywhere."""
    return ["llama-swap", "--config", file, "--listen", listen]


def _shown(key: bool, listen: str) -> str:
    words = shlex.join(command("THIS-FILE", listen))
    return f"{KEY}=... {words}" if key else words


def _model(
    one: Backend, shares: Mapping[str, float] | None, idle_s: int
) -> dict[str, Any]:
    if not one.argv:
        raise UsageError(
            f"how {one.name} is started is not known",
            hint="invoke serve-router --kind litellm, for servers that run",
        )
    argv = with_option(one.argv, "--port", "RIG-PORT")
    argv = with_option(argv, "--host", "127.0.0.1")
    if shares and one.name in shares and not has_option(argv, _UTILISATION):
        argv = with_option(argv, _UTILISATION, f"{shares[one.name]:.2f}")
    # it has no setting for a folder or for taking variables away
    words = ["env", "--chdir=/", *(f"--unset={n}" for n in one.unset), *argv]
    env = [f"{k}={v}" for k, v in one.env.items()]
    for text in (*words, *env, one.name):
        if "${" in text or "\n" in text:
            raise UsageError(
                f"llama-swap would read a macro in {text!r}",
                hint="rename the folder, or take it out of the command",
            )
    model: dict[str, Any] = {
        "cmd": shlex.join(words).replace("RIG-PORT", "${PORT}"),
        "proxy": "http://127.0.0.1:${PORT}",
        "checkEndpoint": "/health",
        "concurrencyLimit": PARALLEL,
    }
    if env:
        model["env"] = env
    if one.served_name != one.name:
        model["useModelName"] = one.served_name
    if idle_s:
        model["ttl"] = idle_s
    return model
