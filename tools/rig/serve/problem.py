# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What stands against serving a model: one thing, how bad it is, and what helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tools.rig.base.console import Console
from tools.rig.serve.foreign import escaped

_MARKS = {"error": "fail", "unknown": "unknown", "note": "warn"}
"""How each level is marked for people, the worst first."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a model, a machine or a command line, and what helps.

    ``level`` is ``error`` (a server would fail), ``unknown`` (cannot be told from
    here) or ``note``; ``busy`` says that somebody has it now who may give it back, so
    that trying again later may help. Control characters in the texts are escaped: names
    and words of a model's files reach a terminal by them.
    """

    what: str
    hint: str = ""
    level: str = "error"
    busy: bool = False

    def __post_init__(self) -> None:
        """Escape what a terminal would obey."""
        object.__setattr__(self, "what", escaped(self.what))
        object.__setattr__(self, "hint", escaped(self.hint))


def show(console: Console, problems: Iterable[Problem]) -> None:
    """Print problems, the worst first."""
    for problem in sorted(problems, key=lambda p: [*_MARKS].index(p.level)):
        console.mark(_MARKS[problem.level], problem.what)
        if problem.hint and problem.level != "note":
            console.say(f"  hint: {problem.hint}")
