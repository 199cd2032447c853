# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a contributor has put into an overlay comes along into the next one.

Each build ends in an environment of its own, and a debugger that was installed by hand
into the one before would be missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from tools.rig.base import run

_ASK_S = 60.0


def packages(
    uv: Path,
    python: Path,
    env: Mapping[str, str],
    ask: Callable[..., run.Result] = run.run,
) -> dict[str, str]:
    """Return the packages of an environment: names and versions.

    What is installed from a folder of somebody's is left out; so is everything of an
    environment that does not answer.
    """
    argv = [uv, "pip", "list", "--python", python, "--format", "json"]
    got = ask(argv, env=env, cwd="/", timeout=_ASK_S)
    try:
        rows = json.loads(got.out) if got.ok else []
        return {
            canonicalize_name(row["name"]): str(row["version"])
            for row in rows
            if not row.get("editable_project_location")
        }
    except (ValueError, KeyError, TypeError):
        return {}


def missing(
    before: Mapping[str, str], now: Mapping[str, str], project: str
) -> list[str]:
    """Return requirements for what was there before and is not there now.

    Each is held at its version and needs to be installed without what it asks for:
    that is either in the list or there in the version that the new build wants.
    """
    known = {*now, canonicalize_name(project)}
    return [
        f"{name}=={version}"
        for name, version in sorted(before.items())
        if name not in known and "+" not in version
    ]
