# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What was installed by hand into an overlay."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_subprocess import FakeProcess

from tools.rig.builds import carried

ARGV = ["/uv", "pip", "list", "--python", "/e/bin/python", "--format", "json"]


def ask(fp: FakeProcess, out: str, code: int = 0) -> dict[str, str]:
    """Return the packages that uv is made to name."""
    fp.register(ARGV, stdout=out, returncode=code)
    return carried.packages(Path("/uv"), Path("/e/bin/python"), {})


def test_packages(fp: FakeProcess) -> None:
    """Names are canonical; what is installed from a folder is left out."""
    rows = [
        {"name": "Typing_Extensions", "version": "4.6"},
        {"name": "mine", "version": "1", "editable_project_location": "/src"},
    ]
    assert ask(fp, json.dumps(rows)) == {"typing-extensions": "4.6"}


def test_no_answer(fp: FakeProcess) -> None:
    """An environment that does not answer has nothing to take along."""
    assert ask(fp, "[]", code=2) == {}
    assert ask(fp, "no json") == {}
    assert ask(fp, '[{"version": "1"}]') == {}


def test_missing() -> None:
    """What is there in any version stays as the build wants it; so does the target.

    A local version is on no index.
    """
    before = {"pytest": "8.1", "numpy": "1.0", "rig-sample": "1", "x": "1+local"}
    now = {"numpy": "2.0"}
    assert carried.missing(before, now, "Rig_Sample") == ["pytest==8.1"]
