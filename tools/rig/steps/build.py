# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70``: from a checkout to a verified environment.

The order is the promise. Look before writing: the lock and the scan come first. Build
beside: the wheel is made and proved before anything that is in force is touched. Only
then are the libraries put in place, by rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.run import env_difference
from tools.rig.base.state import remove_made, write_text
from tools.rig.builds import cmake_cache, names, ninja_log, overlay, wheel
from tools.rig.builds import plan as plans
from tools.rig.builds.meter import Meter, Peaks
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.progress import Progress
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.steps import build_report, plan
from tools.rig.steps.alone import alone, need_writable
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene
from tools.rig.steps.toolkit import Pair
from tools.rig.steps.verify import failure

NICE = 10
"""Added to the niceness of compiles: a colleague's work comes first."""


@dataclass(frozen=True)
class BuildResult:
    """What a build left behind; ``data`` is its record."""

    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the record."""
        return self.data


def build(
    console: Console, found: Scene, *, wheel_only: bool, use: Tools | None = None
) -> BuildResult:
    """Build, install, verify and record.

    Parameters
    ----------
    console
        Where people follow it.
    found
        What is built, where.
    wheel_only
        Install the wheel instead of an editable overlay.
    use
        What is asked and started.

    Raises
    ------
    InUseError
        When someone uses the environment or holds its lock (exit 4).
    RigError
        When a step fails; what was in force before still is.
    """
    names.check(found.checkout, found.root.path)
    use = use or Tools()
    use.need_git(found.env)
    need_writable(found)
    with alone(console, found, use.guard) as over, Run(console, found.root) as run:
        # also when it fails, the record tells who was overridden
        run.record.update(notes=over)
        return Build(run, found, wheel_only, use, over).steps()


class Build:
    """One run of ``build-sm70``; the methods are its steps, in order."""

    def __init__(
        self,
        run: Run,
        found: Scene,
        wheel_only: bool,
        use: Tools,
        over: Sequence[str] = (),
    ) -> None:
        self.use = use
        self.run = run
        self.console = run.console
        self.record = run.record
        self.scene = found
        self.wheel_only = wheel_only
        self.work_rounds: list[str] = [*over]
        self.env: dict[str, str] = dict(found.env)
        self.python_version = ""
        self.peaks = Peaks()

    def steps(self) -> BuildResult:
        """Do every step; the record tells of each."""
        with self.run.step("environment"):
            self._environment()
        with self.run.step("toolchain"):
            pair = self._toolchain()
        with self.run.step("git"):
            trust = self._git()
        todo = self._plan(pair, trust)
        built, report = self._commands(todo, pair.toolkit.cuobjdump)
        self.run.done(
            wheel=str(built), version=wheel.version(built), verify=report.to_json()
        )
        build_report.summary(
            self.console,
            self.record.data,
            self.record.file,
            report,
            self.peaks,
            self.run.seconds,
            self.work_rounds,
        )
        return BuildResult(self.record.data)

    def _environment(self) -> None:
        settled = overlay.settle(self._journal())
        if settled:
            self.console.say(f"  an interrupted switch was {settled}")
        placing = self.scene.placing
        made = self.use.make_environment(placing, self.console, env=self.env)
        self.python_version = made.python_version
        self.work_rounds += build_report.place_notes(placing, made)

    def _toolchain(self) -> Pair:
        at = self.scene
        chosen = self.use.plan_pair(at.settings, at.profile, at.root, at.env)
        pair: Pair = self.use.act_pair(
            self.console, chosen, at.settings, at.profile, at.root, at.env
        )
        self.work_rounds += build_report.chain_notes(chosen, pair, at.root.toolkits)
        return pair

    def _git(self) -> dict[str, str]:
        at = self.scene
        shims = at.root.make(at.root.shims)
        places = [at.checkout, at.deps]
        safe: GitSafeResult = self.use.git_safe(
            self.console, places, at.env, shims, at.mirrors
        )
        if safe.trusting or at.settings.git_mirrors:
            self.work_rounds.append(f"git: {safe.reason}")
        return safe.env

    def _plan(self, pair: Pair, trust: dict[str, str]) -> BuildPlan:
        at = self.scene
        todo = plan.compose(
            at,
            pair.env,
            trust,
            f"{pair.toolkit.describe()}; host compiler {pair.compiler.describe()}",
            tuple(self.work_rounds),
            self.record.id,
            self.wheel_only,
        )
        self.env.update(todo.env)
        self.env.pop("PYTHONPATH", None)
        self.record.update(
            plan=todo.to_json(),
            commit=self.use.describe(at.checkout, self.env),
            profile=todo.profile,
            checkout=str(at.checkout),
            environment=str(at.environment),
            env_difference=sorted(env_difference(self.env, at.env)),
            notes=self.work_rounds,
        )
        self.console.say(f"  {todo.jobs.count} compiles at once: {todo.jobs.why}")
        self.console.say(f"  whole log: {self.record.log}")
        return todo

    def _commands(self, todo: BuildPlan, cuobjdump: Path) -> tuple[Path, VerifyReport]:
        install, compile_, place, needs = todo.commands
        self._folders(todo)
        with self.run.step(install.title):
            self._install(install)
        with self.run.step(f"build the {compile_.title}"):
            self._compile(compile_)
            built = wheel.only_wheel(todo.wheels)
        with self.run.step("verify the wheel"):
            self._verify(cuobjdump, wheel=built)
        with self.run.step(place.title):
            self._put_in_place(place, built, todo.wheels)
        with self.run.step(needs.title):
            listed = todo.wheels / "requirements.txt"
            needed = wheel.requirements(built, self.python_version)
            write_text(listed, "\n".join(needed) + "\n")
            self._install(needs.filled(requirements=str(listed)))
        with self.run.step("verify"):
            report = self._verify(cuobjdump)
        return built, report

    def _folders(self, todo: BuildPlan) -> None:
        root = self.scene.root
        if todo.places.tmp != root.tmp:
            # what a build that was killed left; the lock says that nobody else is here
            remove_made(todo.places.tmp)
        for folder in (root.tmp, root.cache, root.artifacts, root.deps):
            root.make(folder)
        for folder in (todo.places.tmp, todo.places.deps, todo.wheels):
            root.make(folder)
        constraints = plans.constraints(self.scene.profile)
        write_text(todo.wheels / "constraints.txt", constraints)

    def _install(self, command: Command) -> None:
        # the beginning, up to the value of --python, is uv.install's own
        arguments = command.argv[command.argv.index("--python") + 2 :]
        self.use.install(
            Path(command.argv[0]),
            self.scene.python,
            arguments,
            env={**self.env, **command.env},
            console=self.console,
            log=self.record.log,
            cwd=self.scene.root.tmp,
            nice=NICE,
        )

    def _compile(self, command: Command) -> None:
        for line in cmake_cache.refresh(self.scene.checkout, self.env):
            self.console.say(f"  {line}")
        progress = Progress(self.console)
        meters: list[Meter] = []
        log = self.record.log
        since = log.stat().st_size if log.exists() else 0
        try:
            result = self.use.stream(
                command.argv,
                on_line=progress.line,
                log=log,
                env={**self.env, **command.env},
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

    def _put_in_place(self, command: Command, built: Path, wheels: Path) -> None:
        if self.wheel_only:
            overlay.put_on_path(self._site(), self.scene.profile.project, ())
            self._install(command.filled(wheel=plans.location(built)))
            return
        self._overlay(built)
        hollow = wheel.hollow(built, wheels / "hollow")
        self._install(command.filled(hollow_wheel=str(hollow)))

    def _overlay(self, built: Path) -> None:
        at, profile = self.scene, self.scene.profile
        tracked = set(self.use.tracked(at.checkout, self.env))
        for start, other in profile.overlay_moved.items():
            here = [t for t in tracked if t.startswith(other)]
            tracked |= {start + t[len(other) :] for t in here}
        members = wheel.made_files(built, tracked)
        moved = profile.overlay_moved
        overlay.place(built, members, at.checkout, self._journal(), moved)
        folders = [at.checkout / folder for folder in profile.overlay_paths]
        overlay.put_on_path(self._site(), profile.project, folders)

    def _verify(self, cuobjdump: Path, *, wheel: Path | None = None) -> VerifyReport:
        of_checkout = wheel is None and not self.wheel_only
        report: VerifyReport = self.use.verify(
            self.console,
            python=self.scene.python,
            profile=self.scene.profile,
            cuobjdump=cuobjdump,
            checkout=self.scene.checkout if of_checkout else None,
            wheel=wheel,
        )
        if not report.ok:
            raise failure(report)
        return report

    def _site(self) -> Path:
        return next((self.scene.environment / "lib").glob("python3*/site-packages"))

    def _journal(self) -> Path:
        return self.scene.root.path / "overlay" / f"{self.scene.environment.name}.json"
