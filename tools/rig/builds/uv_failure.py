# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What uv's words mean when it fails: a broken line, a full disk, or the request."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import regex as re

from tools.rig.base import room
from tools.rig.base.errors import StepFailed

# what uv prints when the line, not the request, was at fault
_LINE_BROKE = re.compile(
    r"error sending request|error decoding response body|connection (?:reset|closed)"
    r"|broken pipe|timed? ?out|incomplete ?message|unexpected (?:eof|end of file)"
    r"|dns error|temporary failure|tls handshake|request failed after"
    r"|(?:502|503|504) (?:bad gateway|service|gateway)|hash mismatch"
    # a file that was cut in the middle while uv only read its list of contents
    r"|failed to read from zip file",
    re.IGNORECASE,
)
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def line_broke(lines: Iterable[str]) -> bool:
    """Return whether the line was at fault, so that trying again makes sense."""
    return any(_LINE_BROKE.search(line) for line in lines)


def decisive(lines: Iterable[str]) -> str:
    """Return the line that says most about a failure of uv."""
    causes = [line.strip() for line in lines if line.strip()]
    for mark in ("cause:", "Caused by", "error:", "×"):
        found = [line for line in causes if mark in line]
        if found:
            return found[-1].removeprefix("cause:").strip()
    return causes[-1] if causes else ""


def failure(
    what: str, lines: Iterable[str], place: Path, log: Path | None = None
) -> StepFailed:
    """Return the error for a failed uv, with the cure for a full disk."""
    text = [line for line in lines if line.strip()]
    where = f" Log: {log}" if log else ""
    full = next((line for line in text if _DISK_FULL.search(line)), "")
    if full:
        inodes = room.lacks_inodes(place)
        return StepFailed(
            f"{what}: {room.NO_INODES if inodes else 'the disk is full'}",
            details=[full.strip()],
            usual="Nothing that was there before has changed." + where,
            hint=room.look(place.parent),
        )
    start = next((i for i, line in enumerate(text) if "error" in line.lower()), 0)
    hint = room.look(place.parent)
    if any("network was disabled" in line for line in text):
        hint = "unset ONECAT_OFFLINE UV_OFFLINE"
    elif log:
        hint = f"less {shlex.quote(os.fspath(log))}"
    details = text[start : start + 20]
    return StepFailed(what, details=details, usual=where.strip(), hint=hint)
