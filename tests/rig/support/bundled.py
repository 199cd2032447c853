# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a bundle is made of, in tests: a site, and records of builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.rig.base.config import resolve
from tools.rig.steps.bundling.site import Site


def site(**values: Any) -> Site:
    """Return a site that has what a test gives it."""
    return Site(**{"env": {"PATH": "/bin"}, "settings": resolve({}, {}), **values})


def record(root: Path, name: str, result: str, log: str | None = "INFO ok\n") -> None:
    """Write the record of a build, and its log."""
    for folder in (root / "records", root / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    file = root / "logs" / f"{name}.log"
    if log is not None:
        file.write_text(log)
    data = {"id": name, "result": result, "log": str(file), "steps": []}
    (root / "records" / f"{name}.json").write_text(json.dumps(data))
