# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a check is, and the list of all of them.

A check is a function from :class:`~tools.rig.steps.checks.facts.Facts` to an
:class:`Outcome`. It is registered by the decorator :func:`check`; its topic is the name
of the module that it stands in. How to add one is described in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.rig.steps.checks.facts import Facts

STATUSES = ("ok", "warn", "fail", "skip", "unknown")
"""``fail`` alone means that this machine cannot do it."""

LIMIT_S = 30.0
"""Seconds after which a check that says nothing of its own becomes unknown."""


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    Attributes
    ----------
    status
        One of :data:`STATUSES`.
    detail
        One line for people.
    hint
        A command to type or a change to make; empty when there is nothing to do.
    workaround
        What the suite itself will do about it, in a few words; named in the verdict.
    data
        Facts that a report holds and a comparison of two hosts looks at.
    measured
        Numbers that differ from minute to minute; reported, never compared.
    """

    status: str
    detail: str
    hint: str = ""
    workaround: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"no such status: {self.status}")


@dataclass(frozen=True)
class Check:
    """One registered check; ``source`` says where its facts come from."""

    id: str
    title: str
    topic: str
    source: str
    limit_s: float
    run: Callable[[Facts], Outcome]


_CHECKS: dict[str, Check] = {}


def check(
    id: str, title: str, *, source: str, limit_s: float = LIMIT_S
) -> Callable[[Callable[[Facts], Outcome]], Callable[[Facts], Outcome]]:
    """Register a function as a check.

    Parameters
    ----------
    id
        The name for ``--only``, unique.
    title
        What people read in front of the result.
    source
        Where the facts come from: a file, a command, a table.
    limit_s
        Seconds that it may take, the probes it waits for included.

    Raises
    ------
    ValueError
        When the name is taken already.
    """

    def register(function: Callable[[Facts], Outcome]) -> Callable[[Facts], Outcome]:
        if id in _CHECKS:
            raise ValueError(f"two checks are called {id}")
        topic = function.__module__.rpartition(".")[2]
        _CHECKS[id] = Check(id, title, topic, source, limit_s, function)
        return function

    return register


def registered() -> tuple[Check, ...]:
    """Return every check, in the order in which they are shown."""
    return tuple(_CHECKS.values())
