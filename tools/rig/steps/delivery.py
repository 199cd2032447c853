# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From a built wheel to a proved environment that is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tools.rig.base.state import write_text
from tools.rig.builds import plan as plans
from tools.rig.builds import wheel
from tools.rig.builds.generations import Generation
from tools.rig.builds.plan import BuildPlan, Command
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.host.cuda import Toolkit
from tools.rig.steps import generation, switching
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.compiling import NICE
from tools.rig.steps.recorded import Run
from tools.rig.steps.scene import Scene
from tools.rig.steps.switching import Wish
from tools.rig.steps.verify import failure


class Delivery:
    """The second half of ``build-sm70``; the methods are its steps, in order.

    Parameters
    ----------
    run, found, use, env
        The build, and its whole environment.
    wish, patience
        Whether to wait with the switch, and for how many seconds in any case.
    todo
        The plan.
    toolkit
        What it was built with.
    python
        The version of the environment's Python.
    """

    def __init__(
        self,
        run: Run,
        found: Scene,
        use: Tools,
        env: Mapping[str, str],
        wish: Wish,
        patience: float,
        todo: BuildPlan,
        toolkit: Toolkit,
        python: str,
    ) -> None:
        self.run = run
        self.console = run.console
        self.scene = found
        self.use = use
        self.env = env
        self.wish = wish
        self.patience = patience
        self.todo = todo
        self.toolkit = toolkit
        self.python = python
        self.wheel_only = todo.mode == "wheel"

    def known(self, built: Path) -> Generation | None:
        """Return what is there already and just the same, in force or not."""
        head = self.run.record.data["head"]
        version = self.toolkit.version
        mode, inspect = self.todo.mode, self.use.inspect
        return generation.known(self.scene, built, mode, version, head, inspect)

    def make(self, built: Path) -> tuple[Generation, VerifyReport | None]:
        """Make, fill and prove the new environment; nobody sees it yet.

        An overlay's libraries can only be proved where they lie, after the switch: then
        there is no report yet.
        """
        todo, record, report = self.todo, self.run.record, None
        with generation.new(self.scene, record.id, self.use, self.env) as made:
            with self.run.step(plans.NEEDS):
                listed = todo.wheels / "requirements.txt"
                needed = wheel.requirements(built, self.python)
                write_text(listed, "\n".join(needed) + "\n")
                needs = todo.command(plans.NEEDS).filled(requirements=str(listed))
                self.install(made.folder, needs)
            place = todo.commands[-1]
            with self.run.step(place.title):
                made = self._put(made, place, built)
            if self.wheel_only:
                with self.run.step("verify"):
                    report = self.verify(made.folder)
            made = replace(
                made,
                mode=todo.mode,
                wheel=str(built),
                version=wheel.version(built),
                commit=record.data["commit"],
                toolkit=self.toolkit.version,
                checkout=str(self.scene.checkout),
                head=record.data["head"],
                verified=report is not None,
            )
            return self.use.finish(made), report

    def switch(
        self, made: Generation, report: VerifyReport | None
    ) -> tuple[VerifyReport, list[str]]:
        """Put it in force; return what was proved, and a line for each one overridden.

        Raises
        ------
        InUseError
            When somebody uses what is in force; the new one is kept.
        StepFailed
            When an overlay's libraries are not what they should be; what was in force
            is again.
        """
        found = [] if report is None else [report]

        def proved() -> None:
            with self.run.step("verify"):
                found.append(self.verify(self.scene.environment))
            self.use.finish(replace(made, verified=True))

        with self.run.step("switch"):
            _, over = switching.switch_on(
                self.console,
                self.scene,
                made,
                self.wish,
                head=made.head,
                proved=proved if report is None else None,
                patience=self.patience,
                guard=self.use.guard,
            )
        return found[0], [f"ONECAT_FORCE=1 over PID {line}" for line in over]

    def install(self, environment: Path, command: Command) -> None:
        """Run one of the plan's installs."""
        # the beginning, up to the value of --python, is uv.install's own
        arguments = command.argv[command.argv.index("--python") + 2 :]
        self._add(environment, arguments, command.env)

    def verify(self, environment: Path, *, wheel: Path | None = None) -> VerifyReport:
        """Prove an environment, or a wheel before it is installed.

        Raises
        ------
        StepFailed
            When it does not hold what the profile asks for.
        """
        of_checkout = wheel is None and not self.wheel_only
        report: VerifyReport = self.use.verify(
            self.console,
            python=environment / "bin" / "python",
            profile=self.scene.profile,
            cuobjdump=self.toolkit.cuobjdump,
            checkout=self.scene.checkout if of_checkout else None,
            wheel=wheel,
        )
        if not report.ok:
            raise failure(report)
        return report

    def _put(self, made: Generation, place: Command, built: Path) -> Generation:
        at = self.scene
        if self.wheel_only:
            self.install(made.folder, place.filled(wheel=plans.location(built)))
            return made
        generation.put_on_path(made, at.checkout, at.profile)
        hollow = wheel.hollow(built, self.todo.wheels / "hollow")
        self.install(made.folder, place.filled(hollow_wheel=str(hollow)))
        generation.carry(self.console, at, made, self._add, self._packages)
        libraries = generation.libraries(
            built, at.checkout, at.profile, self.use, self.env
        )
        return replace(made, libraries=libraries)

    def _packages(self, python: Path) -> Mapping[str, str]:
        answer: Mapping[str, str] = self.use.packages(self._uv, python, self.env)
        return answer

    @property
    def _uv(self) -> Path:
        return Path(self.todo.commands[0].argv[0])

    def _add(
        self,
        environment: Path,
        arguments: Sequence[str],
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.use.install(
            self._uv,
            environment / "bin" / "python",
            arguments,
            env={**self.env, **(more or {})},
            console=self.console,
            log=self.run.record.log,
            cwd=self.scene.root.tmp,
            nice=NICE,
        )
