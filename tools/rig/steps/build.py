# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``build-sm70``: from a checkout to a verified environment that is in force.

The order is the promise. Everything is built beside: the wheel on a bench of its own,
then an environment of its own, and both are proved before anything that is in force is
touched. Who runs from it is asked last, when only the switch is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, duration
from tools.rig.base.errors import InUseError
from tools.rig.base.run import env_difference
from tools.rig.base.state import remove_made, write_text
from tools.rig.builds import environment, names
from tools.rig.builds import plan as plans
from tools.rig.builds.generations import Generation
from tools.rig.builds.plan import BuildPlan
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.steps import build_report, dot_venv, plan, pruning, switching
from tools.rig.steps.alone import Alone, alone, need_writable
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.compiling import Compile
from tools.rig.steps.delivery import Delivery
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene
from tools.rig.steps.switching import Wish
from tools.rig.steps.toolkit import Pair
from tools.rig.steps.trees import plain_path


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
        # whose it was is known, however early it fails
        self.record.update(checkout=str(found.checkout))

    def steps(self) -> BuildResult:
        """Do every step; the record tells of each."""
        with self.run.step("environment"):
            self._environment()
        with self.run.step("toolchain"):
            pair = self._toolchain()
        with self.run.step("git"):
            trust = self._git()
        todo = self._plan(pair, trust)
        way = Delivery(
            self.run,
            self.scene,
            self.use,
            self.env,
            self.wish,
            self.here.patience,
            todo,
            pair.toolkit,
            self.python_version,
        )
        built = self._wheel(todo, way)
        same = way.known(built)
        if same is not None and same.active:
            self._nothing_new(same, todo)
            return BuildResult(self.record.data)
        if same is None:
            with self.run.step("verify the wheel"):
                way.verify(self.scene.placing.bench, wheel=built)
            made, proved = way.make(built)
        else:
            self.console.say(f"  {same.id} is just the same, and is taken")
            remove_made(todo.wheels)
            made, proved = same, None
        self.record.update(generation=made.id)
        try:
            report, over = way.switch(made, proved)
        except InUseError:
            # builds that wait pile up like any others
            pruning.prune(self.console, self.scene, self.use.look, made.id)
            raise
        self.work_rounds += over
        dot_venv.follow(self.console, self.scene, self.use.make_link)
        self._done(made, report)
        pruning.prune(self.console, self.scene, self.use.look)
        dot_venv.tell(self.console, self.scene)
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
        for variable in ("PYTHONPATH", *environment.ASTRAY):
            self.env.pop(variable, None)
        for line in environment.astray(at.env):
            self.console.mark("warn", line)
            self.work_rounds.append(line)
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

    def _wheel(self, todo: BuildPlan, way: Delivery) -> Path:
        self._folders(todo)
        with self.run.step(plans.BUILD_NEEDS):
            way.install(self.scene.placing.bench, todo.command(plans.BUILD_NEEDS))
        command = todo.command(plans.WHEEL)
        with self.run.step(f"build the {command.title}"):
            return self.compile.wheel(todo, command, self.env)

    def _nothing_new(self, same: Generation, todo: BuildPlan) -> None:
        """End here: what was built is what is in force, and was proved."""
        remove_made(todo.wheels)
        self.run.done(
            unchanged=same.id,
            wheel=same.wheel,
            version=same.version,
            notes=self.work_rounds,
        )
        self.console.mark("ok", f"nothing changed: {same.id} stays in force")
        self.console.say(f"  environment  {self.scene.environment}")
        self.console.say(f"  took         {duration(self.run.seconds)}")
        dot_venv.follow(self.console, self.scene, self.use.make_link)
        dot_venv.tell(self.console, self.scene)

    def _done(self, made: Generation, report: VerifyReport) -> None:
        self.run.done(
            wheel=made.wheel,
            version=made.version,
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
        write_text(todo.wheels / plans.STORED, plans.NOT_PACKED)
