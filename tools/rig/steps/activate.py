# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``activate`` and ``rollback``: another kept build comes into force, in one step."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.builds import generations
from tools.rig.builds import profile as profiles
from tools.rig.builds.generations import Generation
from tools.rig.guard import gate
from tools.rig.host import git, look
from tools.rig.steps import dot_venv, gone, switching, toolkit, verify
from tools.rig.steps.alone import alone
from tools.rig.steps.git_safe import GitSafeResult, git_safe
from tools.rig.steps.scene import Scene
from tools.rig.steps.switching import Wish


@dataclass(frozen=True)
class Activated:
    """Which build is in force now, and which was before."""

    active: str
    previous: str | None
    environment: str
    mode: str
    version: str
    commit: str
    verified: bool
    seconds: float
    over: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def activate(
    console: Console,
    found: Scene,
    name: str,
    wish: Wish,
    *,
    guard: Callable[..., Any] = gate.guard,
    prove: Callable[[Generation], None] | None = None,
    trust: Callable[..., GitSafeResult] = git_safe,
    head: Callable[..., str] = git.head,
    make_link: Callable[..., str] = look.make_link,
    disk: Callable[..., look.Disk] = look.disk,
) -> Activated:
    """Switch to the build that `name` names, or to the previous one.

    Parameters
    ----------
    name
        An id, or its beginning; nothing for the previous one.
    wish
        Whether to wait, and for whom. Its ``any_commit`` places an overlay's libraries
        although the checkout is at another commit.
    prove
        Looks at a build that was never proved, once it is in force; what it raises
        switches back. None lets it be.
    guard, trust, head, make_link, disk
        Seams for tests.

    Raises
    ------
    UsageError
        When there is no such build, its libraries are of another commit, or it is an
        overlay of a checkout that is gone.
    InUseError
        When someone builds it, or uses what is in force.
    """
    began = time.monotonic()
    with alone(console, found) as here:
        switching.settle(console, found)
        to = generations.find(found.root, found.environment.name, name)
        if to.mode == "editable" and gone.is_gone([to], disk):
            raise UsageError(
                f"the checkout of {to.id} is gone: {to.checkout}",
                usual="It was moved or deleted. An overlay is a checkout's Python "
                "files with built libraries, and is nothing without them.",
                hint="invoke build-sm70",
            )
        if generations.active_id(found.root, found.environment.name) == to.id:
            raise UsageError(f"{to.id} is in force already", hint="invoke builds")
        at = ""
        if to.mode == "editable":
            shims = found.root.make(found.root.shims)
            safe = trust(console, [found.checkout], found.env, shims, found.mirrors)
            at = head(found.checkout, {**found.env, **safe.env})
        owed = None if to.verified or prove is None else functools.partial(prove, to)
        done, over = switching.switch_on(
            console,
            found,
            to,
            wish,
            head=at,
            proved=owed,
            patience=here.patience,
            fresh=False,
            guard=guard,
        )
        dot_venv.follow(console, found, make_link)
    if not to.mode:
        console.mark(
            "warn", f"libraries that {to.id} had in the checkout are not known"
        )
    console.say(f"  environment  {found.environment}")
    version = to.version or "no version known"
    console.say(f"  version      {version} ({to.commit or 'no commit known'})")
    dot_venv.tell(console, found)
    return Activated(
        done.active,
        done.previous,
        str(found.environment),
        to.mode,
        to.version,
        to.commit,
        to.verified or owed is not None,
        round(time.monotonic() - began, 2),
        tuple(over),
    )


def prover(console: Console, found: Scene) -> Callable[[Generation], None]:
    """Return what proves a build of a scene that was not proved before.

    What it returns raises RigError when the build is not what it should be.
    """

    def prove(its: Generation) -> None:
        profile = profiles.load(its.profile)
        plan = toolkit.plan(found.settings, profile, found.root, found.env)
        if plan.toolkit is None:
            raise CannotError("no cuobjdump to check with", hint="invoke cuda-toolkit")
        report = verify.verify(
            console,
            python=found.environment / "bin" / "python",
            profile=profile,
            cuobjdump=plan.toolkit.cuobjdump,
            checkout=Path(its.checkout) if its.mode == "editable" else None,
        )
        if not report.ok:
            raise verify.failure(report)
        generations.finish(replace(its, verified=True))

    return prove
