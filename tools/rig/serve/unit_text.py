# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The text of a server's units, from what they shall be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.rig.serve import hardening, stop
from tools.rig.serve.hardening import Sandbox, word, words
from tools.rig.serve.plan import READY_S, ServePlan
from tools.rig.serve.safe import is_loopback

_STEPS = 254
"""The first systemd with RestartSteps=."""

RESTART_S = 15
BURST = 5
"""Starts within :func:`_window`, after which it is left alone."""

LOOK_EVERY_MIN = 5
LOOK_S = 60
"""Seconds that the token of a look may take."""

_SPARE_S = 14


@dataclass(frozen=True)
class Launcher:
    """How a task is called from anywhere.

    Attributes
    ----------
    argv
        The command up to the name of the task; its program with its whole path.
    folder
        The checkout that the tasks are in.
    """

    argv: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Wish:
    """What a unit shall be.

    Attributes
    ----------
    plan
        What the server will be.
    launcher
        How tasks are called.
    options, extra
        The options of ``serve-tp2`` as they were typed, and what stood behind ``--``.
    root
        The state root.
    run_as
        Whose processes they are, by name; empty in a user's own unit.
    user
        A unit of that user's own systemd.
    namespaces
        Whether a user's unit can be put into namespaces.
    env
        Variables that the tasks need (``ONECAT_*``).
    ready_s
        Seconds that the server may take until it is ready.
    systemd
        The version it is for; None: any.
    """

    plan: ServePlan
    launcher: Launcher
    options: tuple[str, ...]
    root: Path
    run_as: str = ""
    user: bool = False
    namespaces: bool = True
    extra: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ready_s: int = READY_S
    systemd: int | None = None


def stop_s(plan: ServePlan) -> int:
    """Return the seconds that stopping may take: above what draining takes."""
    own = stop.GRACE_S + stop.KILL_S + stop.MEMORY_S
    return plan.drain_s + int(own) + _SPARE_S


def service(wish: Wish) -> str:
    """Return the unit of the server itself, which runs in the foreground."""
    plan = wish.plan
    command = [*wish.launcher.argv, "serve-tp2", *wish.options, "--foreground"]
    command += ["--", *wish.extra] if wish.extra else []
    lines = [
        "[Unit]",
        f"Description=vLLM server {_described(plan.name)}",
        *_after(wish),
        f"StartLimitIntervalSec={_window(wish)}",
        f"StartLimitBurst={BURST}",
        "",
        "[Service]",
        "Type=exec",
        *_identity(wish),
        *_environment(wish),
        f"ExecStart={hardening.command(command)}",
        "# 130: it was told to stop; 2, 3: trying again changes nothing",
        "SuccessExitStatus=130",
        "RestartPreventExitStatus=2 3",
        "Restart=on-failure",
        f"RestartSec={RESTART_S}",
        *_back_off(wish),
        "# the first process alone is told to stop: it lets requests finish",
        "KillMode=mixed",
        f"TimeoutStopSec={stop_s(plan)}",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=65536",
        "LimitCORE=0",
        *_sandbox(wish, own_shm=not wish.user).lines(),
        "",
        "[Install]",
        f"WantedBy={'default.target' if wish.user else 'multi-user.target'}",
    ]
    return _file(lines)


def look(wish: Wish, name: str) -> str:
    """Return the unit of one look, which restarts a server that hangs, and no other.

    The look itself runs as the server's user; what follows it may speak to systemd.
    """
    command = [*wish.launcher.argv, "serve-unit", "--look", "--name", wish.plan.name]
    control = ["/usr/bin/env", "systemctl", *(["--user"] if wish.user else [])]
    control += ["--no-block", "try-restart", f"{name}.service"]
    own = "" if wish.user else "+"
    lines = [
        "[Unit]",
        f"Description=Whether vLLM server {_described(wish.plan.name)} hangs",
        f"After={name}.service",
        "",
        "[Service]",
        "Type=oneshot",
        *_identity(wish),
        *_environment(wish),
        "# ends with 0 when the server hangs and may be restarted now",
        f"ExecCondition={hardening.command(command)}",
        f"ExecStart={own}{hardening.command(control)}",
        f"TimeoutStartSec={LOOK_S * 4}",
        *_sandbox(wish, own_shm=False).lines(),
    ]
    return _file(lines)


def timer(wish: Wish) -> str:
    """Return the timer of the looks."""
    lines = [
        "[Unit]",
        f"Description=Looks whether vLLM server {_described(wish.plan.name)} hangs",
        "",
        "[Timer]",
        f"OnActiveSec={LOOK_EVERY_MIN}min",
        f"OnUnitInactiveSec={LOOK_EVERY_MIN}min",
        "RandomizedDelaySec=30",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return _file(lines)


def _window(wish: Wish) -> int:
    """Return the seconds in which starts are counted.

    So many that failing slowly, one load after the other, is failing too often as well.
    """
    return BURST * (wish.ready_s + RESTART_S)


def _back_off(wish: Wish) -> list[str]:
    if wish.systemd is not None and wish.systemd >= _STEPS:
        return ["RestartSteps=4", "RestartMaxDelaySec=300"]
    return []


def _after(wish: Wish) -> list[str]:
    if wish.user:
        return []
    wanted = ["nvidia-persistenced.service"] if wish.plan.cards else []
    mounts = [wish.plan.model, wish.root, wish.launcher.folder]
    lines = [f"RequiresMountsFor={words(map(str, mounts))}"]
    target = "network.target"
    if not is_loopback(wish.plan.host):
        target = "network-online.target"
        wanted.append(target)
    if wanted:
        lines.append(f"Wants={' '.join(wanted)}")
    after = ["systemd-modules-load.service", *wanted]
    lines.append(f"After={' '.join(dict.fromkeys([target, *after]))}")
    return lines


def _identity(wish: Wish) -> list[str]:
    lines = ["WorkingDirectory=/"]
    return lines if wish.user else [f"User={wish.run_as}", *lines]


def _environment(wish: Wish) -> list[str]:
    made = {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **wish.env}
    cache = wish.root / "cache"
    made.update({name: str(cache / sub) for name, sub in hardening.CACHES.items()})
    if is_loopback(wish.plan.host):
        made.update(hardening.OF_ONE_MACHINE)
    # what the plan says itself is set again below, and wins there
    made = {k: v for k, v in made.items() if k not in wish.plan.env}
    return [f"Environment={word(f'{k}={v}')}" for k, v in sorted(made.items())]


def _sandbox(wish: Wish, *, own_shm: bool) -> Sandbox:
    plan = wish.plan
    keys = [plan.api_key_file] if plan.api_key_file else []
    return Sandbox(
        user=wish.user,
        namespaces=wish.namespaces,
        cards=bool(plan.cards),
        loopback=is_loopback(plan.host),
        own_shm=own_shm,
        writable=(wish.root,),
        read=(plan.model, plan.environment, wish.launcher.folder, *keys),
    )


def _described(name: str) -> str:
    return name.replace("%", "%%").replace("\\", "/")


def _file(lines: Sequence[str]) -> str:
    return "# Written by serve-unit; write it again rather than edit it.\n" + "".join(
        f"{line}\n" for line in lines
    )
