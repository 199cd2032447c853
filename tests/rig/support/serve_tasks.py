# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An Invoke task that starts a server from a plan in a file, for tests of signals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from tools.rig.base.report import run_command
from tools.rig.base.state import StateRoot
from tools.rig.serve.plan import ServePlan
from tools.rig.steps import serve as step

_PATHS = ("model", "python", "cwd", "api_key_file", "log")


def write_plan(plan: ServePlan, file: Path) -> Path:
    """Write a plan as it is, for the task."""
    file.write_text(json.dumps(dataclasses.asdict(plan), default=str))
    return file


def read_plan(file: Path) -> ServePlan:
    """Return a plan that was written."""
    data: dict[str, Any] = json.loads(file.read_text())
    for name in _PATHS:
        data[name] = Path(data[name]) if data[name] else None
    for name in ("argv", "unset", "cards", "notes"):
        data[name] = tuple(data[name])
    return ServePlan(**data)


@task
def serve(c: Context, plan: str, root: str, foreground: bool = False) -> None:
    """Start a server."""
    code = run_command(
        lambda console: step.serve(
            console,
            read_plan(Path(plan)),
            StateRoot(Path(root)),
            foreground=foreground,
        )
    )
    if code:
        raise Exit(code=code)
