# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The whole of ``serve-tp2``: what is asked, whether it can be, and the start."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, UsageError
from tools.rig.base.paths import given_path, typed_path
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations
from tools.rig.host import gpu
from tools.rig.host.gpu import Gpus
from tools.rig.serve import (
    amounts,
    config_file,
    parser,
    planning,
    ports,
    preflight,
    presets,
    problem,
    variables,
)
from tools.rig.serve import model as models
from tools.rig.serve import record as records
from tools.rig.serve.parser import Parser
from tools.rig.serve.plan import READY_S
from tools.rig.serve.planning import Planned, Wish
from tools.rig.serve.problem import Problem
from tools.rig.steps import serve
from tools.rig.steps.scene import Scene

LIST = "list"
"""The word for ``--preset`` that lists them."""

RANKS = 65535
"""The most of either kind that are asked for; no plan comes near."""

DAY_S = 86400


@dataclass(frozen=True)
class Shown:
    """A plan that was only shown, or the list of presets."""

    data: Any
    exit_code: int = ExitCode.OK

    def to_json(self) -> Any:
        """Return plain data."""
        return self.data


@dataclass(frozen=True)
class Seams:
    """What is asked and done; tests put fakes here."""

    gpus: Callable[[], Gpus] = gpu.read
    ask: Callable[..., Parser] = parser.ask
    start: Callable[..., Any] = serve.serve
    machine: preflight.Seams | None = None


def serve_tp2(
    console: Console,
    scene: Scene | None,
    root: StateRoot,
    *,
    model: str,
    environment: str = "",
    tp: str = "",
    pp: str = "",
    preset: str = "",
    name: str = "",
    served_name: str = "",
    host: str = "",
    port: str = "",
    cards: str = "",
    api_key_file: str = "",
    insecure: bool = False,
    drain: str = "",
    timeout: str = "",
    foreground: bool = False,
    show: bool = False,
    rest: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    seams: Seams | None = None,
) -> Any:
    """Plan a server, look whether it can start, and start it.

    Parameters
    ----------
    scene
        The checkout whose environment serves; None where `environment` is named.
    root
        Where records and logs of servers lie.
    environment
        Any folder with ``bin/python`` and a vLLM in it.
    preset
        Names with commas, or ``list``.
    drain, timeout
        Seconds, as typed.
    show
        Only show the plan and everything against it.
    rest
        The words behind ``--``, for vLLM.
    env
        Our own environment when None.

    Raises
    ------
    UsageError
        When an option, of ours or of vLLM's, is wrong.
    CannotError
        When the model, the cards or the machine are in the way.
    InUseError
        When others have the cards or the port now, and nothing else is in the way.
    RigError
        What :func:`tools.rig.steps.serve.serve` raises.
    """
    ask = seams or Seams()
    env = os.environ if env is None else env
    if preset == LIST:
        return _listed(console)
    if not model:
        raise UsageError("which model?", hint="invoke serve-tp2 --model FOLDER")
    place = _environment(environment, scene)
    wish = Wish(
        model=typed_path(model),
        environment=place,
        tensor=amounts.whole("tp", tp, 1, RANKS) if tp else None,
        pipeline=amounts.whole("pp", pp, 1, RANKS) if pp else None,
        name=name,
        served_name=served_name,
        host=host,
        port=ports.number("port", port) if port else 0,
        cards=cards,
        presets=presets.chosen(preset),
        api_key_file=given_path(api_key_file),
        insecure=insecure,
        drain_s=_seconds("drain", drain) if drain else planning.DRAIN_S,
    )
    patience = _seconds("timeout", timeout or "0") or READY_S
    folder = models.read(wish.model)
    with console.step("asking vLLM for its options"):
        known = ask.ask(place / "bin" / "python", root, env=env)
    typed = config_file.taken_apart(
        rest, known, place / "bin" / "python", env=env, cwd=Path.cwd()
    )
    wish = replace(wish, rest=typed.rest, from_file=typed.words, file=typed.file)
    planned = planning.plan(
        wish, known, ask.gpus(), folder, root, env=env, cwd=Path.cwd()
    )
    # a name that cannot be a file's is told before anything is started
    records.path_of(root, planned.plan.name)
    usage, problems = preflight.check(
        planned,
        folder,
        known,
        env=env,
        build=build_problem(place, root),
        seams=ask.machine,
    )
    for one in wish.presets:
        for line in one.lines(known):
            console.say(f"  {line}")
    problem.show(console, [*usage, *problems])
    if show:
        return _shown(console, planned, known, usage, problems)
    preflight.refuse(usage, problems)
    return ask.start(
        console, planned.plan, root, foreground=foreground, timeout=float(patience)
    )


def build_problem(environment: Path, root: StateRoot) -> Problem | None:
    """Return what is known against a build; None for one that is verified.

    Parameters
    ----------
    environment
        Its folder, links resolved.
    """
    with contextlib.suppress(ValueError):
        environment.relative_to(os.path.realpath(root.benches))
        what = f"{environment} is where builds happen, and changes with the next one"
        return Problem(what, "invoke build-sm70, then serve without --environment")
    if not (environment / generations.MARK).is_file():
        what = f"{environment} was not built here, so that nothing is known of its code"
        return Problem(what, "invoke verify", "note")
    found = generations.read(environment)
    if found.problem:
        return Problem(found.problem, "invoke builds", "unknown")
    if found.complete and found.verified:
        return None
    what = f"the build {found.id} was never verified"
    return Problem(what, "invoke verify", "unknown")


def _environment(named: str, scene: Scene | None) -> Path:
    """Return the folder of the environment, links resolved.

    So a switch of environments never changes what a running server loads next.
    """
    if named:
        path = typed_path(named)
    elif scene is not None:
        path = scene.environment
    else:
        raise UsageError("which environment?", hint="--environment FOLDER")
    real = Path(os.path.realpath(path))
    if not os.path.exists(real / "bin" / "python"):
        raise UsageError(
            f"there is no environment at {path}",
            usual="An environment is a folder with bin/python in it.",
            hint=f"ls {shlex.quote(os.fspath(path))}/bin" if named else "invoke builds",
        )
    return real


def _listed(console: Console) -> Shown:
    for preset in presets.known():
        for line in preset.lines():
            console.say(line)
    return Shown([preset.to_json() for preset in presets.known()])


def _shown(
    console: Console,
    planned: Planned,
    known: Parser,
    usage: Sequence[Problem],
    problems: Sequence[Problem],
) -> Shown:
    plan = planned.plan
    for line in plan.lines():
        console.say(f"  {line}")
    for key, value in sorted(plan.env.items()):
        if key != "PATH":
            console.say(f"  variable: {key}={shlex.quote(value)}")
    hunt = variables.for_debugging(known)
    for key, what in hunt.items():
        console.say(f"  for a hunt: {key}={what}")
    every = [*usage, *problems]
    data = {
        "plan": plan.to_json(),
        "problems": [asdict(one) for one in every],
        "debug": hunt,
    }
    return Shown(data, preflight.verdict(usage, problems))


def _seconds(flag: str, word: str) -> int:
    return amounts.whole(flag, word, 0, DAY_S, hint=f"--{flag} 0 to {DAY_S}")
