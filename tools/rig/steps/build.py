# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70``: from a checkout to a verified environment.

The order is the promise. Look before writing: the lock and the scan come first. Build
beside: the wheel is made and proved before anything that is in force is touched. Only
then are the libraries put in place, by rename.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, duration, size
from tools.rig.base.errors import ExitCode, Interrupted, RigError, StepFailed
from tools.rig.base.run import env_difference, stream
from tools.rig.base.state import write_text
from tools.rig.builds import ninja_log, overlay, uv, wheel
from tools.rig.builds import plan as plans
from tools.rig.builds.meter import Meter, Peaks
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.progress import Progress
from tools.rig.builds.record import Record
from tools.rig.diagnose.first_error import first_error
from tools.rig.guard.gate import guard
from tools.rig.guard.lock import BuildLock
from tools.rig.host import git
from tools.rig.steps import git_safe, plan, toolkit, venv, verify
from tools.rig.steps.scene import Scene
from tools.rig.steps.verify import VerifyReport

NICE = 10
"""Added to the niceness of compiles: a colleague's work comes first."""


@dataclass(frozen=True)
class BuildResult:
    """What a build left behind; ``data`` is its record."""

    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the record."""
        return self.data


class Build:
    """One run of ``build-sm70``; the methods are its steps, in order.

    Parameters
    ----------
    console
        Where people follow it.
    found
        What is built, where.
    wheel_only
        Install the wheel instead of an editable overlay.
    """

    def __init__(self, console: Console, found: Scene, *, wheel_only: bool) -> None:
        self.console = console
        self.scene = found
        self.wheel_only = wheel_only
        self.record = Record(found.root, " ".join(sys.argv))
        self.peaks = Peaks()
        self.notes: list[str] = []
        self.env: dict[str, str] = dict(found.env)

    def run(self) -> BuildResult:
        """Do every step and write the record, whatever happens."""
        started = time.monotonic()
        try:
            report = self._steps()
        except BaseException as exc:
            self._ended_badly(exc, time.monotonic() - started)
            raise
        took = time.monotonic() - started
        self.record.end(
            "done",
            ExitCode.OK,
            seconds=round(took, 1),
            peaks=self.peaks.to_json(),
            verify=report.to_json(),
        )
        self._summary(report, took)
        return BuildResult(self.record.data)

    def _steps(self) -> VerifyReport:
        scene_ = self.scene
        with self._step("environment"):
            settled = overlay.settle(self._journal())
            if settled:
                self.console.say(f"  an interrupted switch was {settled}")
            made = venv.act(scene_.placing, self.console)
            self.notes += made.notes
        with self._step("toolchain"):
            pair_plan = toolkit.plan(
                scene_.settings, scene_.profile, scene_.root, scene_.env
            )
            pair = toolkit.act(
                self.console,
                pair_plan,
                scene_.settings,
                scene_.profile,
                scene_.root,
                scene_.env,
            )
            self.notes += pair.notes
        with self._step("git"):
            safe = git_safe.git_safe(
                self.console,
                [scene_.checkout, scene_.deps],
                scene_.env,
                scene_.root.make(scene_.root.shims),
                scene_.mirrors,
            )
            if safe.needed:
                self.notes.append(f"git: {safe.reason}")
        line = f"{pair.toolkit.describe()}; host compiler {pair.compiler.describe()}"
        todo = plan.compose(
            scene_,
            pair.env,
            safe.env,
            line,
            tuple(self.notes),
            self.record.id,
            self.wheel_only,
        )
        self.env.update(todo.env)
        self.env.pop("PYTHONPATH", None)
        self._describe(todo)
        return self._commands(todo, pair.toolkit.cuobjdump)

    def _commands(self, todo: BuildPlan, cuobjdump: Path) -> VerifyReport:
        profile, checkout = self.scene.profile, self.scene.checkout
        root = self.scene.root
        for folder in (root.tmp, root.cache, root.artifacts, root.deps):
            root.make(folder)
        root.make(todo.wheels)
        self.scene.deps.mkdir(parents=True, exist_ok=True)
        write_text(todo.wheels / "constraints.txt", plans.constraints(profile))
        install, compile_, place, needs = todo.commands
        with self._step(install.title):
            self._install(install)
        with self._step(f"build the {compile_.title}"):
            self._compile(compile_)
            built = wheel.only_wheel(todo.wheels)
        with self._step("verify the wheel"):
            proof = verify.verify(
                self.console,
                python=self.scene.python,
                profile=profile,
                cuobjdump=cuobjdump,
                checkout=None,
                wheel=built,
            )
            _must(proof)
        with self._step(place.title):
            names = {"wheel": str(built), "hollow_wheel": ""}
            if not self.wheel_only:
                self._overlay(built)
                hollow = wheel.hollow(built, todo.wheels / "hollow")
                names["hollow_wheel"] = str(hollow)
            self._install(_filled(place, names))
        with self._step(needs.title):
            listed = todo.wheels / "requirements.txt"
            write_text(listed, "\n".join(wheel.requirements(built)) + "\n")
            self._install(_filled(needs, {"requirements": str(listed)}))
        with self._step("verify"):
            report = verify.verify(
                self.console,
                python=self.scene.python,
                profile=profile,
                cuobjdump=cuobjdump,
                checkout=None if self.wheel_only else checkout,
            )
            _must(report)
        self.record.update(wheel=str(built), version=wheel.version(built))
        return report

    def _install(self, command: Command) -> None:
        at = command.argv.index("install") + 1
        extra = command.argv[at:]
        # --python and its value are uv.install's own
        uv.install(
            Path(command.argv[0]),
            self.scene.python,
            [w for i, w in enumerate(extra) if i > 1],
            env={**self.env, **command.env},
            console=self.console,
            log=self.record.log,
            cwd=self.scene.root.tmp,
            nice=NICE,
        )

    def _compile(self, command: Command) -> None:
        progress = Progress(self.console)
        meters: list[Meter] = []
        result = stream(
            command.argv,
            on_line=progress.line,
            log=self.record.log,
            env={**self.env, **command.env},
            cwd=self.scene.root.tmp,
            nice=NICE,
            first_to_die=True,
            on_start=lambda session: meters.append(Meter(session).start()),
        )
        self.console.clear()
        for meter in meters:
            self.peaks = meter.stop()
        self.record.update(objects=self._objects())
        if not result.ok:
            raise self._failure(command.title, result.code)

    def _objects(self) -> list[dict[str, Any]]:
        """Return each step of ninja with its time and, where sampled, its memory."""
        logs = sorted(self.scene.checkout.glob("build/temp*/.ninja_log"))
        found = []
        for step in ninja_log.read(logs[-1]) if logs else []:
            held = self.peaks.objects.get(step.output)
            entry = {"output": step.output, "start_s": step.start_s}
            found.append({**entry, "end_s": step.end_s, "peak_bytes": held})
        return found

    def _overlay(self, built: Path) -> None:
        scene_ = self.scene
        moved = scene_.profile.overlay_moved
        tracked = set(git.tracked(scene_.checkout, self.env))
        for start, other in moved.items():
            here = [t for t in tracked if t.startswith(other)]
            tracked |= {start + t[len(other) :] for t in here}
        members = wheel.made_files(built, tracked)
        overlay.place(built, members, scene_.checkout, self._journal(), moved)
        folders = [scene_.checkout / f for f in scene_.profile.overlay_paths]
        site = next((scene_.environment / "lib").glob("python3*/site-packages"))
        overlay.put_on_path(site, scene_.profile.project, folders)

    def _journal(self) -> Path:
        return self.scene.root.path / "overlay" / f"{self.scene.environment.name}.json"

    def _failure(self, title: str, code: int) -> StepFailed:
        log = self.record.log
        with log.open(encoding="utf-8", errors="replace") as lines:
            cause = first_error(lines)
        details = [cause.text, *cause.context] if cause else []
        where = f"line {cause.line} of {log}" if cause else str(log)
        return StepFailed(
            f"building the {title} failed (status {code})",
            details=details,
            usual=f"The first decisive error stands in {where}.",
            hint=f"less '{log}'",
        )

    def _describe(self, todo: BuildPlan) -> None:
        checkout = self.scene.checkout
        self.record.update(
            plan=todo.to_json(),
            commit=git.describe(checkout, self.env),
            profile=todo.profile,
            checkout=str(checkout),
            environment=str(self.scene.environment),
            env_difference=sorted(env_difference(self.env, self.scene.env)),
            notes=self.notes,
        )
        jobs = todo.jobs
        self.console.say(f"  {jobs.count} compiles at once: {jobs.why}")
        self.console.say(f"  whole log: {self.record.log}")

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            with self.console.step(title):
                yield
        except BaseException:
            self.record.step(title, time.monotonic() - started, "failed")
            raise
        self.record.step(title, time.monotonic() - started, "done")

    def _ended_badly(self, exc: BaseException, seconds: float) -> None:
        stopped = isinstance(exc, (KeyboardInterrupt, Interrupted))
        code = exc.code if isinstance(exc, RigError) else ExitCode.FAILED
        self.record.end(
            "interrupted" if stopped else "failed",
            ExitCode.INTERRUPTED if stopped else code,
            seconds=round(seconds, 1),
            error=str(exc),
            peaks=self.peaks.to_json(),
        )

    def _summary(self, report: VerifyReport, took: float) -> None:
        say = self.console.say
        data = self.record.data
        proved = sum(1 for lib in report.libraries if lib.verdict == "ok")
        say("")
        self.console.mark("ok", f"built {data['version']} ({data['commit']})")
        say(f"  environment  {self.scene.environment}")
        say(f"  proved       {proved} CUDA libraries hold {_cards(self.scene)} code")
        say(f"  took         {duration(took)}")
        if self.peaks.total:
            one = f"{self.peaks.process_name} {size(self.peaks.process)}"
            say(f"  peak memory  {size(self.peaks.total)} in all; largest: {one}")
        for note in self.notes:
            say(f"  work-round   {note}")
        say(f"  record       {self.record.file}")


def build(console: Console, found: Scene, *, wheel_only: bool) -> BuildResult:
    """Build, install, verify and record.

    Raises
    ------
    InUseError
        When someone uses the environment or holds its lock (exit 4).
    RigError
        When a step fails; what was in force before still is.
    """
    command = " ".join(sys.argv)
    found.root.make(found.root.venvs)
    with BuildLock(found.environment, found.checkout, command, console=console):
        guard(
            console, found.environment, found.checkout, force=found.settings.force
        )
        return Build(console, found, wheel_only=wheel_only).run()


def _must(report: VerifyReport) -> None:
    if not report.ok:
        bad = [
            f"{lib.name}: {lib.detail}"
            for lib in report.libraries
            if lib.verdict in ("fail", "missing")
        ]
        bad += [f"import {i.module}: {i.detail}" for i in report.imports if not i.ok]
        raise StepFailed(
            "the build is not what it should be",
            details=bad,
            usual="It is not put into force as verified.",
            hint="invoke verify",
        )


def _filled(command: Command, names: dict[str, str]) -> Command:
    """Put what earlier commands made into the places that the plan left open."""

    def fill(text: str) -> str:
        for name, value in names.items():
            text = text.replace("{" + name + "}", value)
        return text

    argv = tuple(fill(word) for word in command.argv)
    env = {k: fill(v) for k, v in command.env.items()}
    return Command(command.title, argv, env, command.compiles)


def _cards(found: Scene) -> str:
    return ", ".join(f"sm_{sm}" for sm in found.profile.sms)


