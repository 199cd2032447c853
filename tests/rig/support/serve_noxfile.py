# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A nox session that runs a task of serve_tasks as the project's own sessions do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parents[3]


@nox.session(venv_backend="none")
def serve(session: nox.Session) -> None:
    """Start a server; arguments go to the task."""
    words = ["--search-root", str(Path(__file__).parent), "-c", "serve_tasks"]
    # nox goes where its file lies
    with session.chdir(ROOT):
        session.run(
            sys.executable,
            "-m",
            "invoke",
            *words,
            *session.posargs,
            external=True,
            env={"RIG_PARENT": str(os.getpid())},
            interrupt_timeout=30,
            terminate_timeout=30,
        )
