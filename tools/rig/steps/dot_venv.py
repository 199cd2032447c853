# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The checkout's ``.venv`` beside what was just built: made to lead there, or told."""

from __future__ import annotations

from collections.abc import Callable

from tools.rig.base.console import Console
from tools.rig.base.errors import RigError
from tools.rig.builds.place import PlacePlan
from tools.rig.host import look
from tools.rig.steps.scene import Scene


def follow(
    console: Console,
    found: Scene,
    make_link: Callable[..., str] = look.make_link,
) -> None:
    """Let a link of ours that leads elsewhere lead to what is in force now.

    It came along when the checkout was copied or moved, or is of another state root.
    Only after a switch: a build that fails leaves it as it was.
    """
    plan = _plan(found)
    if plan is None or plan.link_action != "switch":
        return
    was = plan.facts.checkout.link.target
    try:
        problem = make_link(plan.link, plan.environment, was)
    except RigError as exc:
        # the build is in force all the same
        problem = exc.what
    if problem:
        _not_it(console, plan, f"cannot be changed: {problem}", "invoke venv-local")
    else:
        console.mark("ok", f"{plan.link} leads there now (it was {was})")


def tell(console: Console, found: Scene) -> None:
    """Say it where ``.venv`` is not what was built: people take it for that."""
    plan = _plan(found)
    left = plan is not None and plan.link_action == "leave"
    if plan is not None and left and plan.facts.checkout.link.kind != "absent":
        _not_it(console, plan, "is yours and was left", plan.link_hint)


def _not_it(console: Console, plan: PlacePlan, why: str, hint: str) -> None:
    console.mark("warn", f"{plan.link} is NOT what is in force: it {why}")
    console.say(f"  what is in force: {plan.environment}")
    console.say(f"  hint: {hint}")


def _plan(found: Scene) -> PlacePlan | None:
    """Return the plan of the place, unless another one's builds are meant."""
    return found.placing if found.placing.environment == found.environment else None
