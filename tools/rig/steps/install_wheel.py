# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``install-wheel``: a wheel that someone else built becomes a verified environment.

It gets no more trust than a build of our own: its name must fit this Python, its
libraries must hold the card's code before anything is installed, and the environment is
looked at again afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import UsageError
from tools.rig.base.state import write_text
from tools.rig.builds import plan as plans
from tools.rig.builds import profile as profiles
from tools.rig.builds import uv as uv_
from tools.rig.builds import wheel_fit
from tools.rig.builds.profile import Profile
from tools.rig.builds.verdicts import VerifyReport
from tools.rig.steps.verify import failure, verify


@dataclass(frozen=True)
class InstallResult:
    """What was installed, and what the two looks at it found.

    ``unchanged`` is the build that held just the same already: nothing was installed,
    and the wheel itself was not looked at again.
    """

    wheel: str
    project: str
    version: str
    before: VerifyReport | None
    after: VerifyReport
    unchanged: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "wheel": self.wheel,
            "project": self.project,
            "version": self.version,
            "before": None if self.before is None else self.before.to_json(),
            "after": self.after.to_json(),
            "unchanged": self.unchanged or None,
        }


def profile_of(wheel: Path, asked: str | None = None) -> Profile:
    """Return the profile for a wheel: the one that was asked for, else by its name.

    Raises
    ------
    UsageError
        When the file is not named like a wheel, no profile knows its project, or the
        profile that was asked for is another project's.
    """
    name = wheel_fit.name_of(wheel)
    found = profiles.load(asked) if asked else profiles.of_project(name.project)
    if found is None:
        known = [profiles.load(n) for n in profiles.names()]
        raise _other_project(wheel, name.project, known)
    if found.project != name.project:
        raise _other_project(wheel, name.project, [found])
    return found


def need_fit(wheel: Path, python: Path, env: Mapping[str, str]) -> None:
    """Refuse a wheel that an interpreter cannot load.

    Raises
    ------
    CannotError
        When it is for another Python or system.
    StepFailed
        When the interpreter does not answer.
    """
    found = wheel_fit.interpreter_of(python, env)
    wheel_fit.check(wheel_fit.name_of(wheel), found)


def install_wheel(
    console: Console,
    wheel: Path,
    *,
    python: Path,
    profile: Profile,
    cuobjdump: Path,
    uv: Path,
    scratch: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    torch_backend: str | None = None,
    install: Callable[..., None] = uv_.install,
) -> InstallResult:
    """Check a wheel, install it with what it needs, and verify the environment.

    The caller holds the environment's lock and has looked who uses it.

    Parameters
    ----------
    wheel
        A local file; see :func:`wheel_fit.file_of`.
    python
        The environment's interpreter.
    profile
        What must be in it; see :func:`profile_of`.
    cuobjdump
        Of a toolkit that knows the profile's architectures.
    uv
        The program.
    scratch
        A folder of ours for the constraints file.
    log
        Gets uv's output.
    env
        Environment of the processes; our own when None.
    torch_backend
        uv's ``--torch-backend``, or None for the index that the user has set up.
    install
        A seam for tests.

    Raises
    ------
    UsageError
        When the file is no wheel of the profile's project.
    CannotError
        When it is for another Python or system.
    StepFailed
        When its libraries lack the card's code (nothing is installed then), the install
        fails, or the environment is not what the profile asks for.
    """
    env = dict(os.environ) if env is None else env
    name = wheel_fit.name_of(wheel)
    if name.project != profile.project:
        raise _other_project(wheel, name.project, [profile])
    with console.step(f"check {wheel.name}"):
        need_fit(wheel, python, env)
        before = _proved(
            verify(
                console,
                python=python,
                profile=profile,
                cuobjdump=cuobjdump,
                checkout=None,
                wheel=wheel,
                env=env,
            ),
            "Nothing was installed.",
        )
    with console.step(f"install {name.project} {name.version}"):
        constraints = scratch / "constraints.txt"
        write_text(constraints, plans.constraints(profile))
        backend = ["--torch-backend", torch_backend] if torch_backend else []
        install(
            uv,
            python,
            [
                *backend,
                "--constraint",
                os.fspath(constraints),
                "--reinstall-package",
                name.project,
                plans.location(wheel),
            ],
            env=env,
            console=console,
            log=log,
        )
    with console.step("verify the environment"):
        after = _proved(
            verify(
                console,
                python=python,
                profile=profile,
                cuobjdump=cuobjdump,
                checkout=None,
                env=env,
            ),
            "The wheel is installed, and is not what it should be.",
        )
    return InstallResult(os.fspath(wheel), name.project, name.version, before, after)


def _proved(report: VerifyReport, note: str) -> VerifyReport:
    if not report.ok:
        raise failure(report, note)
    return report


def _other_project(wheel: Path, project: str, choice: Iterable[Profile]) -> UsageError:
    known = ", ".join(f"{p.name} is for {p.project}" for p in choice)
    return UsageError(
        f"{wheel.name} is a wheel of {project}, which the profile does not know",
        usual=f"Profile {known}.",
        hint="invoke install-wheel --profile NAME FILE",
    )
