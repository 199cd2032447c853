# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How a server ended: by itself, and why, or because somebody stopped it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tools.rig.base import daemon, redact
from tools.rig.base.errors import RigError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.diagnose import examine, words
from tools.rig.serve import record as records
from tools.rig.serve.record import ServerRecord


def by_others(root: StateRoot, record: ServerRecord) -> bool:
    """Say whether somebody else stopped this server, or does so now.

    Who stops a server says so in its record, and takes the record away in the end.
    """
    try:
        now = records.load(root, record.name)
    except RigError:
        return False
    if now is None or now.token != record.token:
        return True
    return now.state_of_stop == records.STOPPING or now.being_stopped


def why(record: ServerRecord, did: str = "did not start") -> StepFailed:
    """Return the error for a server that ended by itself: the root cause in its log."""
    ended = how(record)
    log = Path(record.log)
    hint = f"less {shlex.quote(record.log)}"
    what = f"the server {record.name} {did}"
    try:
        seen = examine.logs([os.fspath(log)])[0].judgement
    except RigError:
        return StepFailed(f"{what}: {ended}", hint=hint)
    if seen.root is not None:
        said = words.filled(seen.root, "en", {"venv": record.environment})
        line = seen.root.line
        return StepFailed(
            f"{what}: {said.title}",
            details=[
                f"line {line.number} of {log}:",
                redact.text(line.text[: words.EVIDENCE]),
            ],
            usual=said.cause,
            hint=said.fix[0] if said.fix else hint,
        )
    telling = [redact.text(line.text[: words.EVIDENCE]) for line in seen.telling]
    return StepFailed(
        f"{what}: {ended}",
        details=telling,
        usual="Its log says no cause that is known here.",
        hint=hint,
    )


def how(record: ServerRecord) -> str:
    """Return in words how a server ended, as its keeper wrote it down."""
    end = daemon.how_it_ended(record.end)
    if end is None:
        return "it is gone, and nobody saw how it ended"
    code = end.get("code")
    if isinstance(code, int) and code < 0:
        return f"it was ended by signal {-code}"
    return f"it ended with exit status {code}"
