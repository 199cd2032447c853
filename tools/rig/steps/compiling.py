# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The one long step of a build: the target's own build makes a wheel."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rig.base.console import size
from tools.rig.base.process import Result
from tools.rig.builds import (
    cmake_cache,
    compile_cache,
    compile_setup,
    eta,
    ninja_log,
    record,
    wheel,
)
from tools.rig.builds.admission.client import Admission, summary
from tools.rig.builds.admission.predictions import Predictions, key_of
from tools.rig.builds.compile_setup import CompileSetup
from tools.rig.builds.meter import Meter, Peaks
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.progress import Progress
from tools.rig.steps import build_report
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.diagnose import machine_facts
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
        setup = todo.setup
        said = compile_setup.make(setup, self.scene.root)
        for line in [*said, *cmake_cache.refresh(self.scene.checkout, env)]:
            self.console.say(f"  {line}")
        log = self.run.record.log
        since = log.stat().st_size if log.exists() else 0
        name, cap = self.run.record.id, setup.jobs.cap
        admission = self.use.admission(name, setup.files, setup.machine.cores, cap)
        try:
            with (
                self.use.serving(
                    setup.cache, env, log.with_suffix(".sccache.log"), nice=NICE
                ) as served,
                admission,
                self._progress(setup, admission) as progress,
            ):
                told = len(served.notes)
                for line in served.notes:
                    self.console.say(f"  {line}")
                added = {**served.add, **admission.env, **command.env}
                result = self._run(command, {**env, **added}, progress, log)
        finally:
            self.console.clear()
            self._learnt(admission)
        for line in served.notes[told:]:
            self.console.say(f"  {line}")
        self._cache_counts(setup, served.counts)
        if not result.ok:
            full = build_report.full_disk(
                command.title, log, since, self.scene.root.path
            )
            facts = machine_facts(self.run.record.data)
            raise full or build_report.failure(
                command.title, result.code, log, since, facts
            )
        return wheel.only_wheel(todo.wheels)

    def _run(
        self, command: Command, env: Mapping[str, str], progress: Progress, log: Path
    ) -> Result:
        meters: list[Meter] = []
        try:
            result: Result = self.use.stream(
                command.argv,
                on_line=progress.line,
                log=log,
                env=env,
                cwd=self.scene.root.tmp,
                nice=NICE,
                first_to_die=True,
                on_start=lambda session: meters.append(Meter(session).start()),
            )
            return result
        finally:
            for meter in meters:
                self.peaks = meter.stop()

    def _progress(self, setup: CompileSetup, admission: Admission) -> Progress:
        known = Predictions.load(setup.files.predictions)

        def expected(name: str) -> float:
            return known.predict(key_of(name)).curve.duration

        def measured(name: str) -> float | None:
            curve = known.curves.get(key_of(name))
            return curve.duration if curve else None

        before: list[dict[str, float]] = []
        # a record that somebody has edited costs the guess of the time that is left
        with contextlib.suppress(KeyError, TypeError, ValueError):
            before = eta.stages(self._before(), measured)
        return Progress(
            self.console,
            status=lambda: admission.latest,
            eta=eta.Eta(before, expected, setup.jobs.cap),
            build=self.run.record.id,
            events=setup.files.events,
        )

    def _before(self) -> list[dict[str, Any]]:
        """Return the steps of the newest build of this profile that went well."""
        for entry in record.listing(self.scene.root):
            same = entry.get("profile") == self.scene.profile.name
            if same and entry.get("result") in ("done", "kept"):
                return list(entry.get("objects") or ())
        return []

    def _learnt(self, admission: Admission) -> None:
        """Record what the compiles took, and say where memory ran out."""
        for one in admission.ran_out:
            mended = "it was compiled again" if one.get("code") == 0 else "it failed"
            held = size(int(one.get("peak_bytes") or 0))
            name = str(one.get("object"))
            self.console.mark("warn", f"memory ran out under {name} ({held}); {mended}")
        events = admission.events()
        peaks = {key_of(str(e.get("object"))): e.get("peak_bytes") for e in events}
        self.run.facts.update(
            admission=summary(events, admission.held_by),
            objects=self._objects(peaks),
            peaks=self.peaks.to_json(),
        )

    def _cache_counts(self, setup: CompileSetup, counted: Mapping[str, Any]) -> None:
        if setup.cache.name == "ccache":
            counted = compile_cache.counts_of_ccache(setup.counts)
        if counted:
            self.run.facts.update(compile_cache=dict(counted))

    def _objects(self, held: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return each step of ninja with its time and, where compiled, its memory."""
        at = self.scene.checkout
        return [
            {
                "output": ninja_log.short(step.output, at),
                "start_s": step.start_s,
                "end_s": step.end_s,
                "peak_bytes": held.get(key_of(step.output)),
            }
            for step in ninja_log.of_checkout(at)
        ]
