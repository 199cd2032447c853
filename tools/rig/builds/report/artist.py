# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Draws with matplotlib, which lives in an environment of its own.

The environment is made at the first report and costs some seconds and 140 MB. Nothing
that a build needs is in it, and without it there is still a report.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.base.errors import RigError, StepFailed, quoted
from tools.rig.base.state import StateRoot, remove_made
from tools.rig.builds import uv, workbench
from tools.rig.builds.report.sources import Row

LOCK = Path(__file__).parents[2] / "requirements" / "report.txt"
SCRIPT = Path(__file__).with_name("plots.py")

DRAW_S = 180.0
"""Seconds that drawing may take; the first time, matplotlib looks at all fonts."""

IDLE_S = 60.0
"""Seconds without a sign of life after which uv is given up: it is only a report."""

Drawings = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Artist:
    """What draws; tests put fakes into the seams.

    ``env`` is the user's environment, ``python`` the interpreter that the environment
    is made of.
    """

    env: Mapping[str, str]
    python: Path = Path(sys.executable)
    find: Callable[..., Path] = uv.program
    make: Callable[..., bool] = uv.make_venv
    install: Callable[..., None] = uv.install
    ask: Callable[..., run.Result] = run.run

    def draw(
        self, sheet: Mapping[str, Any], root: StateRoot, console: Console
    ) -> Drawings:
        """Return SVG texts by plot and width.

        Raises
        ------
        RigError
            When matplotlib cannot be brought or does not draw.
        """
        home = self._environment(root, console)
        # what matplotlib learns of the fonts is kept beside it, and not in a home
        env = {**self.env, "MPLCONFIGDIR": str(home / "fonts"), "MPLBACKEND": "svg"}
        got = self.ask(
            [home / "bin" / "python", "-I", SCRIPT],
            env=env,
            cwd=home,
            timeout=DRAW_S,
            input_text=json.dumps(sheet),
        )
        if not got.ok:
            said = got.err.strip().splitlines() or [f"exit status {got.code}"]
            raise StepFailed(f"matplotlib did not draw: {said[-1]}", hint=_anew(home))
        try:
            return _checked(json.loads(got.out))
        except (ValueError, AttributeError) as exc:
            raise StepFailed(
                f"matplotlib drew no picture: {exc}", hint=_anew(home)
            ) from exc

    def _environment(self, root: StateRoot, console: Console) -> Path:
        """Return the environment of this lock; make it where it is not there."""
        homes = root.path / "tools" / "report"
        home = homes / self._name()
        if (home / "bin" / "python").exists():
            return home
        console.say("  bringing matplotlib, once, into an environment of its own")
        made_by = self.find(self.env)
        env = uv.environment(self.env, root)
        for name, value in (("UV_HTTP_TIMEOUT", "20"), ("UV_HTTP_RETRIES", "1")):
            # nobody waits minutes for the looks of a report
            env[name] = self.env.get(name) or value
        root.make(root.cache)
        log = root.make(root.logs) / "report-tools.log"
        root.make(root.path / "tools")
        with workbench.workbench(root.make(homes), home.name, wait_s=120) as work:
            if (home / "bin" / "python").exists():
                # another run brought it meanwhile
                return home
            beside = work / "venv"
            self.make(made_by, self.python, beside, env=env, prompt="report")
            self.install(
                made_by,
                beside / "bin" / "python",
                ["--require-hashes", "--requirement", str(LOCK)],
                env=env,
                console=console,
                log=log,
                cwd=work,
                idle_s=IDLE_S,
                pauses_s=(),
            )
            # one whose Python went away
            remove_made(home)
            workbench.publish(beside, home)
            _sweep(homes, home)
        return home

    def _name(self) -> str:
        """Return the environment's name: another lock or Python is another one."""
        digest = hashlib.sha256(LOCK.read_bytes())
        digest.update(os.fsencode(os.path.realpath(self.python)))
        return digest.hexdigest()[:12]


def _anew(home: Path) -> str:
    """Return the command after which the environment is made again."""
    return f"rm -r {quoted(home)}, and run the command again"


def _sweep(homes: Path, kept: Path) -> None:
    """Take away the environments of other locks."""
    for other in homes.iterdir():
        if other != kept and not other.name.startswith(".") and other.is_dir():
            # one that does not go now goes with the next lock
            with contextlib.suppress(RigError):
                remove_made(other)


def _checked(made: Row) -> Drawings:
    """Return drawings, when that is what they are."""
    for views in made.values():
        for svg in views.values():
            if not str(svg).startswith("<svg"):
                raise ValueError("no drawing")
    return made
