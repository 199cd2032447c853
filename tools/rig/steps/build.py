# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70``: from a checkout to a verified environment that is in force.

The order is the promise. Everything is built beside: the wheel on a bench of its own,
then an environment of its own, and both are proved before anything that is in force is
touched. Who runs from it is asked last, when only the switch is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.run import env_difference
from tools.rig.base.state import remove_made, write_text
from tools.rig.builds import names, wheel
from tools.rig.builds import plan as plans
from tools.rig.builds.generations import Generation
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.steps import build_report, generation, plan, pruning, switching
from tools.rig.steps.alone import Alone, alone, need_writable
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.compiling import NICE, Compile
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene
from tools.rig.steps.switching import Wish
from tools.rig.steps.toolkit import Pair
from tools.rig.steps.trees import plain_path
from tools.rig.steps.verify import failure


@dataclass(frozen=True)
class BuildResult:
    """What a build left behind; ``data`` is its record."""

    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the record."""
        return self.data


def build(
    console: Console,
    found: Scene,
    *,
    wheel_only: bool,
    when_free: bool = False,
    use: Tools | None = None,
) -> BuildResult:
    """Build, verify, switch on and record.

    Parameters
    ----------
    console
        Where people follow it.
    found
        What is built, where.
    wheel_only
        Make a generation from the wheel, instead of an editable overlay.
    when_free
        Wait with the switch until nobody uses what is in force.
    use
        What is asked and started.

    Raises
    ------
    InUseError
        When someone holds the lock; or when someone uses what is in force, and the
        build is kept beside it (exit 4).
    RigError
        When a step fails; what was in force before still is.
    """
    names.check(found.checkout, found.root.path)
    use = use or Tools()
    use.need_git(found.env)
    need_writable(found)
    wish = Wish(when_free, bool(found.settings.force))
    with alone(console, found) as here, Run(console, found.root) as run:
        return Build(run, found, wheel_only, use, wish, here).steps()


class Build:
    """One run of ``build-sm70``; the methods are its steps, in order."""

    def __init__(
        self,
        run: Run,
        found: Scene,
        wheel_only: bool,
        use: Tools,
        wish: Wish,
        here: Alone,
    ) -> None:
        self.use = use
        self.run = run
        self.console = run.console
        self.record = run.record
        self.scene = found
        self.wheel_only = wheel_only
        self.wish = wish
        self.here = here
        self.work_rounds: list[str] = []
        self.env: dict[str, str] = dict(found.env)
        self.python_version = ""
        self.compile = Compile(run, found, use)

    def steps(self) -> BuildResult:
        """Do every step; the record tells of each."""
        with self.run.step("environment"):
            self._environment()
        with self.run.step("toolchain"):
            pair = self._toolchain()
        with self.run.step("git"):
            trust = self._git()
        todo = self._plan(pair, trust)
        built = self._wheel(todo, pair.toolkit.cuobjdump)
        made, report = self._generation(todo, built, pair)
        report = self._switch(made, pair.toolkit.cuobjdump, report)
        pruning.prune(self.console, self.scene, self.use.look)
        self._done(built, report)
        return BuildResult(self.record.data)

    def _environment(self) -> None:
        switching.settle(self.console, self.scene)
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
        kit, compiler = pair.toolkit, pair.compiler
        chosen = plan.Chosen(
            pair.env,
            f"{kit.describe()}; host compiler {compiler.describe()}",
            kit.release,
            plan.variant(compiler, None),
            self.python_version,
            plain_path(at.root.make(at.root.shims)),
        )
        notes, name = tuple(self.work_rounds), self.record.id
        todo = plan.compose(at, chosen, trust, notes, name, self.wheel_only)
        self.env.update(todo.env)
        self.env.pop("PYTHONPATH", None)
        self.record.update(
            plan=todo.to_json(),
            commit=self.use.describe(at.checkout, self.env),
            head=self.use.head(at.checkout, self.env),
            profile=todo.profile,
            toolkit=kit.version,
            checkout=str(at.checkout),
            environment=str(at.environment),
            env_difference=sorted(env_difference(self.env, at.env)),
            notes=self.work_rounds,
        )
        self.console.say(f"  compiles at once: {todo.setup.jobs.why}")
        self.console.say(f"  whole log: {self.record.log}")
        return todo

    def _wheel(self, todo: BuildPlan, cuobjdump: Path) -> Path:
        self._folders(todo)
        with self.run.step(plans.BUILD_NEEDS):
            self._install(self.scene.placing.bench, todo.command(plans.BUILD_NEEDS))
        command = todo.command(plans.WHEEL)
        with self.run.step(f"build the {command.title}"):
            built = self.compile.wheel(todo, command, self.env)
        with self.run.step("verify the wheel"):
            self._verify(cuobjdump, self.scene.placing.bench, wheel=built)
        return built

    def _generation(
        self, todo: BuildPlan, built: Path, pair: Pair
    ) -> tuple[Generation, VerifyReport | None]:
        """Make, fill and prove the new environment; nobody sees it yet."""
        report = None
        with generation.new(self.scene, self.record.id, self.use, self.env) as made:
            with self.run.step(plans.NEEDS):
                listed = todo.wheels / "requirements.txt"
                needed = wheel.requirements(built, self.python_version)
                write_text(listed, "\n".join(needed) + "\n")
                needs = todo.command(plans.NEEDS).filled(requirements=str(listed))
                self._install(made.folder, needs)
            place = todo.commands[-1]
            with self.run.step(place.title):
                made = self._put(made, place, built, todo.wheels)
            if self.wheel_only:
                with self.run.step("verify"):
                    report = self._verify(pair.toolkit.cuobjdump, made.folder)
            made = replace(
                made,
                wheel=str(built),
                version=wheel.version(built),
                commit=self.record.data["commit"],
                toolkit=pair.toolkit.version,
                checkout=str(self.scene.checkout),
                head=self.record.data["head"],
                verified=report is not None,
            )
            return self.use.finish(made), report

    def _put(
        self, made: Generation, place: Command, built: Path, wheels: Path
    ) -> Generation:
        at = self.scene
        if self.wheel_only:
            self._install(made.folder, place.filled(**generation.whole(built)))
            return replace(made, mode="wheel")
        generation.put_on_path(made, at.checkout, at.profile)
        self._install(made.folder, place.filled(**generation.hollow(built, wheels)))
        libraries = generation.libraries(
            built, at.checkout, at.profile, self.use, self.env
        )
        return replace(made, mode="editable", libraries=libraries)

    def _switch(
        self, made: Generation, cuobjdump: Path, report: VerifyReport | None
    ) -> VerifyReport:
        """Put it in force; the libraries of an overlay are proved where they lie."""
        found: list[VerifyReport] = [] if report is None else [report]

        def proved() -> None:
            with self.run.step("verify"):
                found.append(self._verify(cuobjdump, self.scene.environment))
            self.use.finish(replace(made, verified=True))

        with self.run.step("switch"):
            _, over = switching.switch_on(
                self.console,
                self.scene,
                made,
                self.wish,
                head=made.head,
                proved=None if self.wheel_only else proved,
                patience=self.here.patience,
                guard=self.use.guard,
            )
        self.work_rounds += [f"ONECAT_FORCE=1 over PID {line}" for line in over]
        return found[0]

    def _done(self, built: Path, report: VerifyReport) -> None:
        self.run.done(
            wheel=str(built),
            version=wheel.version(built),
            verify=report.to_json(),
            notes=self.work_rounds,
        )
        build_report.summary(
            self.console,
            self.record.data,
            self.record.file,
            report,
            self.compile.peaks,
            self.run.seconds,
            self.work_rounds,
        )

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

    def _install(self, environment: Path, command: Command) -> None:
        # the beginning, up to the value of --python, is uv.install's own
        arguments = command.argv[command.argv.index("--python") + 2 :]
        self.use.install(
            Path(command.argv[0]),
            environment / "bin" / "python",
            arguments,
            env={**self.env, **command.env},
            console=self.console,
            log=self.record.log,
            cwd=self.scene.root.tmp,
            nice=NICE,
        )

    def _verify(
        self, cuobjdump: Path, environment: Path, *, wheel: Path | None = None
    ) -> VerifyReport:
        of_checkout = wheel is None and not self.wheel_only
        report: VerifyReport = self.use.verify(
            self.console,
            python=environment / "bin" / "python",
            profile=self.scene.profile,
            cuobjdump=cuobjdump,
            checkout=self.scene.checkout if of_checkout else None,
            wheel=wheel,
        )
        if not report.ok:
            raise failure(report)
        return report
