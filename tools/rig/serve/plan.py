# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What starting a server will do, down to its command line, before it does it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.rig.base import redact

READY_S = 1800
"""Seconds that a server may take until it is ready, where nobody says otherwise."""


@dataclass(frozen=True)
class ServePlan:
    """One server: what it runs, where, and on which cards.

    Attributes
    ----------
    name
        Names its record and its log.
    model
        The model's folder.
    served_name
        The name by which clients ask for it.
    python
        The environment's interpreter, links in its folder resolved, so that a switch
        of environments never changes what runs.
    argv
        The whole command.
    env, unset
        Variables that are added to ours, and that are taken away.
    cwd
        A neutral folder, never a checkout: there `import vllm` would find the sources.
    api_key_file
        Holds the key that clients must send, which reaches the server as the variable
        ``VLLM_API_KEY`` and never by its command line. None: no key.
    tensor, pipeline
        Ranks of either kind of parallelism.
    cards
        Indexes as NVML counts; empty without a GPU.
    drain_s
        Seconds that the server itself gives running requests when it is told to stop.
    notes
        What people should know about the choices.
    rest
        The words behind ``--``, with whole paths.
    """

    name: str
    model: Path
    served_name: str
    python: Path
    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset: tuple[str, ...]
    cwd: Path
    host: str
    port: int
    api_key_file: Path | None
    tensor: int
    pipeline: int
    cards: tuple[int, ...]
    log: Path
    drain_s: int
    notes: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()

    @property
    def environment(self) -> Path:
        """The folder of the environment."""
        return self.python.parent.parent

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, secrets masked."""
        plain = {**asdict(self), "argv": redact.argv([*self.argv])}
        plain["rest"] = redact.argv([*self.rest])
        plain["env"] = redact.env(dict(self.env))
        return {key: _plain(value) for key, value in plain.items()}

    def lines(self) -> list[str]:
        """Return the plan for people."""
        cards = ", ".join(map(str, self.cards)) or "none"
        return [
            f"model: {self.model} as {self.served_name}",
            f"environment: {self.environment}",
            f"address: {self.host} port {self.port}"
            + (", with an API key" if self.api_key_file else ""),
            f"cards: {cards} (tensor {self.tensor}, pipeline {self.pipeline})",
            f"command: {shlex.join(redact.argv([*self.argv]))}",
            *(f"note: {note}" for note in self.notes),
        ]


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return os.fspath(value)
    return [*value] if isinstance(value, tuple) else value
