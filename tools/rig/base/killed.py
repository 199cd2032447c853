# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a compiler was killed: then what it was to compile is not at fault."""

from __future__ import annotations

import signal

import regex as re

from tools.rig.base.errors import StepFailed
from tools.rig.base.process import Result

_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)

# drivers pass on that a part of theirs was killed with a status of their own
_SAID = re.compile(
    r"^(?:\S+: (?:line \d+: +)?)?(?:\d+ )?Killed\b"
    r"|[Kk]illed signal terminated program"
    r"|(?:died|terminated|failed) (?:due to|by|with) signal:? ?(?:9\b|SIGKILL)"
    r"|unable to execute command: Killed",
    re.MULTILINE,
)


def was_killed(result: Result) -> bool:
    """Say whether a compiler, or a part that it started, was ended by signal 9.

    What we ended ourselves, since it took too long, does not count.
    """
    if result.ok or result.timed_out:
        return False
    return result.code in _CODES or bool(_SAID.search(result.out + result.err))


def refusal(program: object, work: str, said: str) -> StepFailed:
    """Return the error for a compiler that was killed.

    Parameters
    ----------
    program
        What was started.
    work
        What it was doing: ``compiling a kernel for sm_70``.
    said
        Its output.
    """
    lines = [line for line in said.splitlines() if line.strip()]
    return StepFailed(
        f"{program} was killed (signal 9) while {work}",
        details=[line for line in lines if _SAID.search(line)] or lines[-3:],
        usual="Something ended it from outside: most often the kernel, because memory "
        "ran out. Whether the compilers fit is not known by that.",
        hint="free -h, make room in memory, then run the command again",
    )
