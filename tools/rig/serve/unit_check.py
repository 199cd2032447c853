# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Has systemd's own analyser read units before anybody installs them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.process import NOT_STARTED, Result
from tools.rig.base.run import run

LIMIT_S = 60.0


@dataclass(frozen=True)
class Checked:
    """What the analyser said.

    Attributes
    ----------
    problems
        Lines of what is wrong; empty: nothing.
    exposure
        Of each service, from 0 to 10; one that could not be told is missing.
    unknown
        Why something could not be checked; empty: all was.
    """

    problems: tuple[str, ...]
    exposure: Mapping[str, float]
    unknown: str = ""


def check(files: Sequence[Path], *, user: bool, limit: float) -> Checked:
    """Have units read by ``systemd-analyze``: their syntax, and how exposed they are.

    Parameters
    ----------
    files
        The unit files, all that refer to each other.
    user
        They are a user's own.
    limit
        Most exposure of a service.
    """
    with tempfile.TemporaryDirectory() as runtime:
        env = {**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
        if user:
            # the analyser wants one even to read files
            env.setdefault("XDG_RUNTIME_DIR", runtime)
        scope = ["--user"] if user else []
        verified = _analyze([*scope, "verify", "--man=no", *map(os.fspath, files)], env)
        if verified.code == NOT_STARTED:
            return Checked((), {}, "systemd-analyze is not here: the units are unread")
        said = [*verified.out.splitlines(), *verified.err.splitlines()]
        problems = [line for line in said if line and _is_about(line, files)]
        if not verified.ok and not problems:
            problems = said or [f"systemd-analyze ended with {verified.code}"]
        exposure, unknown = {}, ""
        for file in files:
            if file.suffix != ".service":
                continue
            words = [*scope, "security", "--no-pager", "--offline=true"]
            answer = _analyze([*words, os.fspath(file)], env)
            found = re.search(r"exposure level[^:]*: ([\d.]+)", answer.out)
            if found is None:
                # before 250 it reads units that are loaded alone
                unknown = "this systemd-analyze does not tell how exposed a file is"
                continue
            exposure[file.name] = float(found[1])
            if exposure[file.name] > limit:
                problems.append(f"{file.name}: exposure {found[1]}, above {limit}")
    return Checked(tuple(problems), exposure, unknown)


def _is_about(line: str, files: Sequence[Path]) -> bool:
    """Say whether a line speaks of our files, and not of the machine's own units."""
    return any(file.name in line for file in files)


def _analyze(words: Sequence[str], env: Mapping[str, str]) -> Result:
    return run(["systemd-analyze", *words], env=env, timeout=LIMIT_S)
