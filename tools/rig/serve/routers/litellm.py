# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A configuration of LiteLLM's proxy: servers that run, chosen by the request's model.

The prefix ``hosted_vllm/`` is LiteLLM's name for an OpenAI-compatible vLLM. Version
1.108 does not start without a master key, unless its settings permit that.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.rig.base.errors import UsageError
from tools.rig.serve.foreign import shown
from tools.rig.serve.routers import yaml
from tools.rig.serve.routers.backend import KEY as KEY
from tools.rig.serve.routers.backend import Backend

ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
}
"""Variables with which it asks nobody on the network when it starts."""

READ_S = 3600
"""Seconds that an answer may take."""

_PERMIT = "dangerously_permit_weak_or_unset_master_key"


def config(backends: Sequence[Backend], *, key: bool = False) -> str:
    """Return the configuration; servers of one name share its requests.

    Parameters
    ----------
    key
        Clients must send a key, which LiteLLM reads from its variable
        ``RIG_ROUTER_KEY``.

    Raises
    ------
    UsageError
        When a name cannot stand in a header of its answers.
    """
    _check_names(backends)
    several = max(Counter(one.name for one in backends).values()) > 1
    variables = {file: name for name, file in keys(backends).items()}
    data: dict[str, Any] = {
        "model_list": [_model(one, variables) for one in backends],
        "router_settings": {
            "routing_strategy": "least-busy" if several else "simple-shuffle",
            # a second server may answer where the first refused; a lone one that failed
            # must not compute the same again
            "num_retries": 1 if several else 0,
            "allowed_fails": 3,
            "cooldown_time": 30,
        },
        "litellm_settings": {"request_timeout": READ_S, "telemetry": False},
    }
    data["general_settings"] = (
        {"master_key": f"os.environ/{KEY}"} if key else {_PERMIT: True}
    )
    head = ["Written by serve-router for LiteLLM's proxy."]
    wanted = [*sorted(keys(backends)), *([KEY] if key else [])]
    if wanted:
        head += ["", f"It reads the keys from its variables: {', '.join(wanted)}"]
    return yaml.document(data, head)


def keys(backends: Sequence[Backend]) -> dict[str, Path]:
    """Return the variables that servers' keys come by, and the files of these.

    Replicas may have different keys, and names that differ may look alike in the
    letters of a variable: then a number is added.
    """
    found: dict[str, Path] = {}
    for one in backends:
        if one.api_key_file is None or one.api_key_file in found.values():
            continue
        name, numbers = one.key_variable, itertools.count(2)
        while name in found:
            name = f"{one.key_variable}_{next(numbers)}"
        found[name] = one.api_key_file
    return found


def command(file: str, host: str, port: int) -> list[str]:
    """Return how it is started; without an address it would listen everywhere."""
    words = ["litellm", "--config", file, "--host", host, "--port", str(port)]
    env = [f"{k}={v}" for k, v in ENVIRONMENT.items()]
    return ["env", *env, *words]


def _check_names(backends: Sequence[Backend]) -> None:
    """Refuse what LiteLLM answers each request with 500 for (seen in 1.108.7)."""
    for name in (name for one in backends for name in (one.name, one.served_name)):
        try:
            name.encode("latin-1")
        except UnicodeEncodeError:
            raise UsageError(
                f"LiteLLM cannot serve a model called {shown(name)}",
                usual="It writes the name into headers of its answers, which hold no "
                "such letters, and each request fails.",
                hint="invoke serve-tp2 with --served-name qwen",
            ) from None


def _model(one: Backend, variables: Mapping[Path, str]) -> dict[str, Any]:
    params = {
        "model": f"hosted_vllm/{one.served_name}",
        "api_base": f"http://{one.address}/v1",
    }
    if one.api_key_file:
        params["api_key"] = f"os.environ/{variables[one.api_key_file]}"
    return {"model_name": one.name, "litellm_params": params}
