# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-unit``: write systemd's units of a server, and have them read."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, ExitCode, UsageError
from tools.rig.base.state import StateRoot, write_text
from tools.rig.host import systemd
from tools.rig.host.systemd import Systemd
from tools.rig.serve import hardening, reach, unit_check, unit_notes, unit_text, units
from tools.rig.serve.plan import READY_S, ServePlan
from tools.rig.serve.reach import Need, Reached
from tools.rig.serve.unit_check import Checked
from tools.rig.serve.units import Launcher, Units, Wish

_PATHS = ("model", "environment", "api_key_file", "source")
_PASSED_ON = ("ONECAT_", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")


@dataclass(frozen=True)
class Written:
    """What ``serve-unit`` wrote; ``install`` are the commands that bring it to life.

    ``problems`` are the analyser's; ``closed`` is what the server's user cannot reach.
    """

    folder: str
    files: tuple[str, ...]
    exposure: Mapping[str, float]
    problems: tuple[str, ...]
    unknown: str
    notes: tuple[str, ...]
    install: tuple[str, ...]
    closed: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when something is wrong with them, or the server could not start."""
        return ExitCode.FAILED if self.problems or self.closed else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def launcher(folder: Path, python: str = sys.executable) -> Launcher:
    """Return how tasks of this checkout are called, whatever the working folder.

    Parameters
    ----------
    folder
        The checkout.
    python
        An interpreter with Invoke in it.
    """
    words = (python, "-m", "invoke", "--search-root", os.fspath(folder))
    return Launcher(words, folder)


def typed(values: Mapping[str, object], folder: Path | None = None) -> list[str]:
    """Return options as they could be typed again, from anywhere.

    Parameters
    ----------
    values
        By name; None, False and empty words were not given, and a list was typed
        several times.
    folder
        What relative paths are meant from; our own folder when None.
    """
    words: list[str] = []
    for name, value in values.items():
        several = value if isinstance(value, (list, tuple)) else [value]
        for one in several:
            if one in (None, "", False):
                continue
            flag = f"--{name.replace('_', '-')}"
            if one is True:
                words.append(flag)
                continue
            is_path = isinstance(one, Path) or name in _PATHS
            home = os.path.expanduser(str(one))
            at = (folder or Path.cwd()) / home if is_path else one
            value = os.path.normpath(str(at)) if is_path else str(at)
            # what begins with a dash would be taken for an option
            words += [f"{flag}={value}"] if value[:1] == "-" else [flag, value]
    return words


def serve_unit(
    console: Console,
    plan: ServePlan,
    root: StateRoot,
    options: Sequence[str],
    extra: Sequence[str] = (),
    *,
    start: Launcher,
    user: bool = False,
    run_as: str = "",
    output: Path | None = None,
    ready_s: int = READY_S,
    env: Mapping[str, str] | None = None,
    ask: Callable[[], Systemd] = systemd.read,
    check: Callable[..., Checked] = unit_check.check,
    reached: Callable[[str, Sequence[Need]], Reached] = reach.look,
) -> Written:
    """Write a service for a server and a timer that restarts it when it hangs.

    Parameters
    ----------
    plan
        What the server will be.
    root
        Where it keeps its state; the files go into a folder there.
    options, extra
        The options of ``serve-tp2`` as typed (without ``--foreground``), and what stood
        behind ``--``.
    start
        How tasks are called.
    user
        Units of the user's own systemd.
    run_as
        Whose processes the server's are; the state root's owner when empty.
    output
        A folder for the files instead; also for another machine, one without systemd.
    ready_s
        Seconds that the server may take until it is ready.
    env
        Our own environment when None.
    ask, check, reached
        What looks at this machine's systemd, what reads the files, and what looks
        whether the server's user can reach what it needs.

    Raises
    ------
    CannotError
        When systemd does not run this machine and no folder is named, or is too old.
    UsageError
        When there is no such user, when a unit of the user's own systemd shall run as
        another one, or when a secret would stand in a unit.
    StepFailed
        When a file cannot be written.
    """
    env = os.environ if env is None else env
    who = _user(root, run_as, user)
    found = ask()
    if not found.booted and output is None:
        raise CannotError(
            "systemd does not run this machine",
            details=instead(plan, start, options, extra),
            hint="--output FOLDER writes the units for another machine",
        )
    made = units.plan(
        Wish(
            plan=plan,
            launcher=start,
            options=(*_named(options, plan.name),),
            root=root.path,
            run_as=who,
            user=user,
            namespaces=not (user and found.booted and found.no_namespaces),
            extra=(*extra,),
            env=_passed_on(env, root),
            ready_s=ready_s,
            systemd=found.version if found.booted else None,
        )
    )
    # as a whole path: the commands that install them are typed anywhere
    folder = output.absolute() if output else root.make(root.path / "units") / made.name
    files = [folder / name for name in made.files]
    for name, text in made.files.items():
        write_text(folder / name, text)
    judged = check(files, user=user, limit=hardening.LIMIT)
    seen = reached(who, reach.needs(plan, start, root.path))
    notes = [*made.notes, *unit_notes.of_owner(root, who)]
    notes += [seen.unknown] if seen.unknown else []
    notes += unit_notes.left_out(env, made, user=user)
    done = Written(
        folder=os.fspath(folder),
        files=tuple(map(os.fspath, files)),
        exposure=judged.exposure,
        problems=_counted(judged, user and bool(found.no_namespaces)),
        unknown=judged.unknown,
        notes=tuple(notes),
        install=tuple(install(made, folder, user=user)),
        closed=seen.problems,
    )
    _show(console, done)
    return done


def install(made: Units, folder: Path, *, user: bool) -> list[str]:
    """Return the commands that install units and start them."""
    sudo = "" if user else "sudo "
    systemctl = "systemctl --user" if user else "sudo systemctl"
    target = "~/.config/systemd/user/" if user else "/etc/systemd/system/"
    files = " ".join(shlex.quote(os.fspath(folder / name)) for name in made.files)
    return [
        f"{sudo}install -D -m 644 -t {target} {files}",
        f"{systemctl} daemon-reload",
        f"{systemctl} enable --now {made.service} {made.timer}",
    ]


def instead(
    plan: ServePlan, start: Launcher, options: Sequence[str], extra: Sequence[str] = ()
) -> list[str]:
    """Return what to use where there is no systemd."""
    words = [*start.argv, "serve-tp2", *_named(options, plan.name)]
    rest = ["--", *extra] if extra else []
    detached = shlex.join([*words, *rest])
    stays = shlex.join([*words, "--foreground", *rest])
    look = shlex.join([*start.argv, "serve-unit", "--look", "--name", plan.name])
    again = shlex.join([*start.argv, "serve-stop", "--name", plan.name])
    seconds = unit_text.stop_s(plan)
    cron = [f"@reboot {detached}", f"*/5 * * * * {look} && {again} && {detached}"]
    return [
        "in a container, under runit, supervisord or OpenRC: let it run",
        f"  {stays}",
        f"  stop it by SIGTERM, allow {seconds} s, restart it when it fails",
        "  (with exit status 2 or 3 trying again changes nothing)",
        "with cron alone, one line for the start and one that looks every 5 minutes:",
        # cron ends a command at a percent sign
        *(f"  {line}".replace("%", "\\%") for line in cron),
    ]


def _named(options: Sequence[str], name: str) -> list[str]:
    there = any(o == "--name" or o.startswith("--name=") for o in options)
    return [*options] if there else [*options, "--name", name]


def _user(root: StateRoot, named: str, own: bool) -> str:
    """Return whose the processes are; empty in a unit of the user's `own` systemd."""
    if named:
        try:
            there = pwd.getpwnam(named)
        except KeyError:
            raise UsageError(
                f"there is no user {named}", hint="getent passwd"
            ) from None
        if own and there.pw_uid != os.geteuid():
            raise UsageError(
                f"--user and --run-as {named} contradict each other",
                usual="Your own systemd runs what it starts as you.",
                hint="leave out --user, or --run-as",
            )
        return "" if own else there.pw_name
    if own:
        return ""
    place = root.path if root.path.exists() else Path.home()
    try:
        return pwd.getpwuid(place.stat().st_uid).pw_name
    except (KeyError, OSError):
        raise UsageError(
            f"whose {place} is cannot be told", hint="--run-as USER"
        ) from None


def _passed_on(env: Mapping[str, str], root: StateRoot) -> dict[str, str]:
    """Return the variables that the tasks need; another user remembers no root."""
    given = {k: v for k, v in env.items() if k.startswith(_PASSED_ON)}
    return {**given, "ONECAT_LOCAL_ROOT": os.fspath(root.path)}


def _counted(judged: Checked, opened: bool) -> tuple[str, ...]:
    """Return what counts: a user's unit without namespaces cannot be closed in more."""
    return tuple(p for p in judged.problems if not (opened and ": exposure " in p))


def _show(console: Console, done: Written) -> None:
    for file in done.files:
        exposure = done.exposure.get(Path(file).name)
        told = "" if exposure is None else f" (exposure {exposure})"
        console.say(f"  {file}{told}")
    for problem in (*done.closed, *done.problems):
        console.mark("fail", problem)
    if done.unknown:
        console.mark("unknown", done.unknown)
    elif not done.problems:
        console.mark("ok", "systemd-analyze finds nothing wrong")
    for note in done.notes:
        console.say(f"note: {note}")
    console.say("to install:")
    for line in done.install:
        console.say(f"  {line}")
