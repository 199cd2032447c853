# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether an nvcc takes the options that the user's environment gives to every nvcc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.run import run

VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""nvcc reads them, whatever it is started for."""

_FATAL = "nvcc fatal"


@dataclass(frozen=True)
class Refused:
    """A variable that an nvcc cannot be started with, and nvcc's own words."""

    variable: str
    value: str
    said: str

    @property
    def unknown(self) -> bool:
        """Whether there is an option in it that this nvcc does not know at all."""
        return "Unknown option" in self.said

    def __str__(self) -> str:
        why = "does not know it" if self.unknown else "does not take it"
        return f"{self.variable}={self.value}: nvcc {why} ({self.said})"


def without(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nvcc gets nothing but its command line."""
    return {name: value for name, value in env.items() if name not in VARIABLES}


def refused(nvcc: Path, env: Mapping[str, str], timeout: float) -> Refused | None:
    """Return the first of the user's variables that an nvcc refuses.

    Parameters
    ----------
    nvcc
        One that works without them.
    env
        The user's environment.
    timeout
        Seconds for each question.
    """
    given = [name for name in VARIABLES if env.get(name, "").strip()]
    plain = _fatal(nvcc, without(env), timeout) if given else ""
    for name in given:
        said = _fatal(nvcc, {**without(env), name: env[name]}, timeout)
        # a host compiler is judged with the toolkit that it is for
        if said and said != plain and "host compiler" not in said:
            return Refused(name, env[name], said)
    return None


def _fatal(nvcc: Path, env: Mapping[str, str], timeout: float) -> str:
    """Return what nvcc says against a compile that it only has to plan."""
    argv = [os.fspath(nvcc), "--dryrun", "-c", "-x", "cu", os.devnull]
    answer = run([*argv, "-o", os.devnull], env=env, timeout=timeout)
    if answer.ok or answer.timed_out:
        return ""
    lines = (answer.err + answer.out).splitlines()
    said = next((line for line in lines if line.startswith(_FATAL)), "")
    return said.partition(":")[2].strip()
