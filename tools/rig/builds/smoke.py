# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Imports a module as its user will: in a fresh Python, from outside the checkout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tools.rig.base import run, scratch
from tools.rig.builds.verdicts import ImportVerdict
from tools.rig.host.linkage import DRIVER

TIMEOUT_S = 300.0
"""Seconds for one import; vllm's takes ten from a local disk, minutes from a NAS."""

_MARK = "rig-import: "
# BaseException: a module that calls sys.exit must become a finding, not pass in silence
_IMPORT = f"""
import importlib, json, sys
try:
    made = importlib.import_module(sys.argv[1])
    said = {{"file": getattr(made, "__file__", None) or ""}}
except BaseException as exc:
    said = {{"error": type(exc).__name__, "text": str(exc)}}
print("\\n{_MARK}" + json.dumps(said), flush=True)
"""


def try_import(
    python: Path, module: str, env: Mapping[str, str], timeout: float = TIMEOUT_S
) -> ImportVerdict:
    """Import one module.

    ``-I`` keeps the current folder, PYTHONPATH and the user's own site-packages off the
    search path: a checkout there would hide an install that is not complete.

    Parameters
    ----------
    env
        The environment of the new Python.
    timeout
        Seconds.
    """
    with scratch.folder("import") as folder:
        result = run.run(
            [python, "-I", "-c", _IMPORT, module],
            env=env,
            cwd=folder,
            timeout=timeout,
        )
    if result.timed_out:
        detail = f"did not end within {timeout:.0f} s"
        return ImportVerdict(module, "fail", detail=detail)
    marked = [s for s in result.out.splitlines() if s.startswith(_MARK)]
    if not marked:
        last = result.err.strip().splitlines()[-1:] or [""]
        detail = f"Python ended with status {result.code} {last[0]}".strip()
        return ImportVerdict(module, "fail", detail=detail)
    said = json.loads(marked[-1][len(_MARK) :])
    if "error" not in said and not said["file"]:
        # Python imports any folder of that name, such as what an uninstall left
        return ImportVerdict(module, "fail", detail="is a folder without code")
    if "error" not in said:
        return ImportVerdict(module, "ok", said["file"])
    detail = f"{said['error']}: {said['text'].splitlines()[0] if said['text'] else ''}"
    absent = [n for n in DRIVER if said["text"].startswith(f"{n}: cannot open shared")]
    if said["error"] == "ImportError" and absent:
        return ImportVerdict(module, "not checkable here", detail=f"needs {absent[0]}")
    return ImportVerdict(module, "fail", detail=detail)
