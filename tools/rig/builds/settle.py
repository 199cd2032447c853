# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Makes what the plan for the place says: root, environment, link, record.

A run that dies between any two of these leaves whole things only: the environment is
made beside its place and renamed, the record is written last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.rig.base import run, state
from tools.rig.base.console import Console
from tools.rig.base.errors import StepFailed, quoted, unwritable
from tools.rig.builds import interpreter, survey, uv
from tools.rig.builds.place import Environment, PlacePlan
from tools.rig.builds.uv_failure import failure
from tools.rig.host import look, pythons
from tools.rig.host.pythons import Python


def act(
    plan: PlacePlan,
    console: Console,
    *,
    env: Mapping[str, str] | None = None,
    ask: uv.Run = run.run,
    stream: uv.Stream = run.stream,
    make_link: Callable[..., str] = look.make_link,
    before_moving: Callable[[], object] | None = None,
    relink: bool = False,
) -> Environment:
    """Make the environment, the folders beside it and the link; remember the root.

    The caller holds the lock of the environment.

    Parameters
    ----------
    plan
        From :func:`tools.rig.builds.place.plan`.
    console
        Gets what people should know.
    env
        Our environment when None.
    ask, stream, make_link
        Seams for tests.
    before_moving
        Called before a broken environment in force is set aside; it raises when
        somebody uses that. None leaves it there: a build looks who uses it, and
        switches, at its end.
    relink
        Whether a link of ours that leads elsewhere is switched now. A build does that
        once it is in force.

    Raises
    ------
    InUseError
        When `before_moving` says so; nothing was moved.
    StepFailed
        When the disk is full, uv fails, or the place was taken by somebody else.
    CannotError
        When no Python can be had.
    """
    env = dict(os.environ if env is None else env)
    for verdict in plan.verdicts:
        its = verdict.candidate
        before = its.chosen or its.root == plan.facts.remembered
        if verdict.reason and before:
            console.mark("warn", f"not used: {verdict}")
    _make_folders(plan)
    uv_env = uv.environment(env, plan.root, offline=plan.facts.offline)
    notes = list(plan.notes)
    existing, _ = survey.inspect(plan.environment, ask)
    if existing == "broken" and not before_moving:
        console.mark("warn", f"{plan.environment} is broken: it is left until a switch")
    elif existing == "broken" and before_moving:
        before_moving()
        notes.append(_set_aside(plan.environment))
        existing = "absent"
    bench, version = survey.inspect(plan.bench, ask)
    if bench != "ready":
        if bench == "broken":
            notes.append(_set_aside(plan.bench))
        if existing == "ready":
            python = plan.environment / "bin/python"
        else:
            program = uv.program(env)
            base = _python(plan, program, uv_env, console, ask, stream, notes)
            python = base.path
        version = make(plan, plan.bench, python, env, ask)
    if existing == "absent":
        _switch_on(plan)
    link = _link(plan, notes, make_link, relink)
    for note in notes:
        left = note == plan.link_note
        console.mark("warn" if left else "ok", note)
        if left and plan.link_hint:
            console.say(f"  hint: {plan.link_hint}")
    made = Environment(
        root=plan.root,
        path=plan.environment,
        python=plan.environment / "bin/python",
        python_version=version,
        link=link,
        notes=tuple(notes),
        deps=plan.deps,
        bench=plan.bench,
    )
    record(plan, made)
    return made


def make(
    plan: PlacePlan,
    folder: Path,
    python: Path,
    env: Mapping[str, str],
    ask: uv.Run = run.run,
) -> str:
    """Make an environment of a checkout at its final path; return its Python's version.

    Parameters
    ----------
    folder
        Its place: the bench, or one among the generations.
    python
        The interpreter that it is made from; that of another environment will do.
    env
        Our environment.

    Raises
    ------
    StepFailed
        When uv fails, or what it made does not work.
    """
    uv.make_venv(
        uv.program(env),
        python,
        folder,
        env=uv.environment(env, plan.root, offline=plan.facts.offline),
        prompt=plan.facts.checkout.real.name or "checkout",
        ask=ask,
    )
    state, version = survey.inspect(folder, ask)
    if state != "ready":
        raise StepFailed(
            f"the environment {folder} was made and does not work",
            hint=f"{quoted(folder / 'bin/python')} -c 'import sys'",
        )
    return version


def record(plan: PlacePlan, made: Environment) -> None:
    """Remember the root for this user, and in the root whose environment this is.

    Raises
    ------
    StepFailed
        When a file cannot be written.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if plan.facts.remembered != plan.root.path:
        state.write_json(
            plan.facts.remembered_in,
            {"root": str(plan.root.path), "chosen": plan.chosen, "why": plan.why},
        )
    best = plan.verdicts[-1].candidate
    rates = best.disk.rates
    state.write_json(
        plan.root.places / f"{plan.environment.name}.json",
        {
            "checkout": str(plan.facts.checkout.real),
            "environment": str(made.path),
            "python": made.python_version,
            "link": str(made.link) if made.link else None,
            "mount": str(best.disk.mount),
            "creates_per_second": round(rates.create) if rates else None,
            "refused": [str(v) for v in plan.verdicts if v.reason],
            "notes": list(made.notes),
            "at": now,
        },
    )


def _make_folders(plan: PlacePlan) -> None:
    root = plan.root
    try:
        root.make(root.path)
        if not plan.chosen and root.path.lstat().st_uid != os.getuid():
            # a name in a folder that all may write to can be taken before us
            raise StepFailed(
                f"{root.path} belongs to somebody else",
                hint="export ONECAT_LOCAL_ROOT=<a folder of yours on a local disk>",
            )
        folders = (root.venvs, root.deps, plan.deps, root.cache, root.tmp)
        for folder in (*folders, root.generations, root.benches):
            root.make(folder)
    except OSError as exc:
        raise failure(
            f"cannot make {exc.filename or root.path}", [str(exc)], root.path
        ) from exc


def _switch_on(plan: PlacePlan) -> None:
    """Put the bench in force, where nothing was built yet."""
    try:
        os.symlink(plan.bench, plan.environment)
    except OSError as exc:
        raise unwritable(plan.environment, exc) from exc


def _set_aside(environment: Path) -> str:
    """Rename a broken environment and keep it: somebody may still use its files."""
    if environment.is_symlink():
        target = os.readlink(environment)
        environment.unlink()
        return f"the environment in force was broken; it is kept as {target}"
    aside = environment.with_name(f"{environment.name}.broken")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = environment.with_name(f"{environment.name}.broken-{number}")
    os.rename(environment, aside)
    return f"the environment was broken; it is kept as {aside}, a new one is made"


def _python(
    plan: PlacePlan,
    program: Path,
    env: Mapping[str, str],
    console: Console,
    ask: uv.Run,
    stream: uv.Stream,
    notes: list[str],
) -> Python:
    choice = plan.python
    reason = ""
    if choice.download:
        console.say(f"Python {choice.download} is not installed: uv brings it")
        log = plan.root.logs / "uv-python.log"
        path, reason = uv.install_python(
            program, choice.download, env=env, log=log, ask=ask, stream=stream
        )
        if path is not None:
            found = pythons.probe(path, "uv", ask=ask)
            if not found.problem:
                return found
            reason = found.problem
    if choice.installed is None:
        wish = interpreter.Wish(
            plan.facts.wanted,
            plan.facts.wanted_by_user,
            requires=plan.facts.requires_python,
            need_headers=plan.facts.need_headers,
        )
        raise interpreter.missing(wish, plan.facts.pythons, reason)
    if choice.download or choice.why:
        why = f"uv cannot bring it: {reason}" if reason else choice.why
        notes.append(
            f"Python {choice.installed.version} ({choice.installed.path}) instead of "
            f"{plan.facts.wanted}: {why}"
        )
    if not choice.installed.headers:
        release = ".".join(map(str, choice.installed.release))
        notes.append(
            f"Python {release} has no headers (Python.h); a target that is compiled "
            f"with them wants: apt-get install python{release}-dev"
        )
    return choice.installed


def _link(
    plan: PlacePlan, notes: list[str], make_link: Callable[..., str], relink: bool
) -> Path | None:
    if plan.link_action == "leave":
        notes.append(plan.link_note)
        return None
    if plan.link_action == "make" or (plan.link_action == "switch" and relink):
        was = plan.facts.checkout.link.target
        problem = make_link(plan.link, plan.environment, was)
        if problem:
            notes.append(
                f"no link {plan.link} was made ({problem}): the environment is "
                f"{plan.environment}"
            )
            return None
    return plan.link
