# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Plans of servers that never start, for what is written about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tools.rig.serve.plan import ServePlan
from tools.rig.serve.routers import backend
from tools.rig.serve.units import Launcher, Wish

HOSTILE = "mö del $HOME %h \"q\" 'a' \\x ;"
"""A name with everything in it that some file format treats specially."""

PLAN = ServePlan(
    name="qwen",
    model=Path("/srv/models/qwen"),
    served_name="qwen",
    python=Path("/srv/env/bin/python"),
    argv=(
        *("/srv/env/bin/python", "-P", "/srv/env/bin/vllm", "serve"),
        *("/srv/models/qwen", "--host", "127.0.0.1", "--port", "8000"),
        *("--served-model-name", "qwen", "-tp", "2"),
    ),
    env={"VLLM_LOGGING_LEVEL": "INFO"},
    unset=("PYTHONPATH",),
    cwd=Path("/"),
    host="127.0.0.1",
    port=8000,
    api_key_file=None,
    tensor=2,
    pipeline=1,
    cards=(0, 1),
    log=Path("/srv/state/servers/qwen.log"),
    drain_s=60,
)
"""A server with two cards."""

ONE = backend.of_plan(PLAN)
TWO = replace(ONE, port=8001)
OTHER = replace(TWO, name="other", served_name="other")
"""The same as a server behind a router, one like it at another port, and another."""

START = Launcher(("/opt/python", "-m", "invoke"), Path("/opt/checkout"))
TASKS = "/opt/python -m invoke"
"""How a unit of that server calls the tasks, and that as it is typed."""

ROOT = Path("/srv/state")
WISH = Wish(PLAN, START, ("--model", "/srv/models/qwen", "--tp", "2"), ROOT, "llm")
"""A unit of that server."""
