# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The one long step of a build: the target's own build makes a wheel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rig.builds import cmake_cache, ninja_log, wheel
from tools.rig.builds.meter import Meter, Peaks
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.progress import Progress
from tools.rig.steps import build_report
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene

NICE = 10
"""Added to the niceness of compiles: a colleague's work comes first."""


class Compile:
    """Compiles under watch; ``peaks`` and the record's ``objects`` tell of it.

    Parameters
    ----------
    run
        Where it is recorded, also when it fails.
    found
        What is built.
    use
        What is started.
    """

    def __init__(self, run: Run, found: Scene, use: Tools) -> None:
        self.run = run
        self.console = run.console
        self.scene = found
        self.use = use
        self.peaks = Peaks()

    def wheel(self, todo: BuildPlan, command: Command, env: Mapping[str, str]) -> Path:
        """Run the build and return the wheel.

        Raises
        ------
        StepFailed
            When it fails, with the root cause that its log names.
        """
        for line in cmake_cache.refresh(self.scene.checkout, env):
            self.console.say(f"  {line}")
        progress = Progress(self.console)
        meters: list[Meter] = []
        log = self.run.record.log
        since = log.stat().st_size if log.exists() else 0
        try:
            result = self.use.stream(
                command.argv,
                on_line=progress.line,
                log=log,
                env={**env, **command.env},
                cwd=self.scene.root.tmp,
                nice=NICE,
                first_to_die=True,
                on_start=lambda session: meters.append(Meter(session).start()),
            )
        finally:
            self.console.clear()
            for meter in meters:
                self.peaks = meter.stop()
            self.run.facts.update(objects=self._objects(), peaks=self.peaks.to_json())
        if not result.ok:
            raise build_report.failure(command.title, result.code, log, since)
        return wheel.only_wheel(todo.wheels)

    def _objects(self) -> list[dict[str, Any]]:
        """Return each step of ninja with its time and, where sampled, its memory."""
        at, held = self.scene.checkout, self.peaks.objects
        return [
            {
                "output": ninja_log.short(step.output, at),
                "start_s": step.start_s,
                "end_s": step.end_s,
                "peak_bytes": held.get(step.output),
            }
            for step in ninja_log.of_checkout(at)
        ]
