# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The systemd units of one server: itself, and a timer that looks whether it hangs.

Text alone: nothing is installed or started from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.rig.base import redact
from tools.rig.base.errors import CannotError, UsageError
from tools.rig.serve import unit_text
from tools.rig.serve.safe import is_loopback
from tools.rig.serve.server import plain_name
from tools.rig.serve.unit_text import Launcher as Launcher
from tools.rig.serve.unit_text import Wish as Wish

OLDEST = 243
"""The first systemd with ExecCondition=; an older one would skip that line, and restart
the server at every look."""

_PORTS_OF_ROOT = 1024


@dataclass(frozen=True)
class Units:
    """The files, by name: a service, its look and the timer of that."""

    name: str
    files: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def service(self) -> str:
        """The unit of the server itself."""
        return f"{self.name}.service"

    @property
    def timer(self) -> str:
        """The timer of the looks."""
        return f"{self.name}-look.timer"


def plan(wish: Wish) -> Units:
    """Return the units of a server.

    Raises
    ------
    UsageError
        When a secret would stand in them, or the server would run as root.
    CannotError
        When the systemd is too old.
    """
    _check(wish)
    name = unit_name(wish.plan.name)
    look = f"{name}-look"
    files = {
        f"{name}.service": unit_text.service(wish),
        f"{look}.service": unit_text.look(wish, name),
        f"{look}.timer": unit_text.timer(wish),
    }
    return Units(name, files, tuple(_notes(wish)))


def unit_name(name: str) -> str:
    """Return the name of a server's units without the ending."""
    return f"rig-{plain_name(name)}"


def _check(wish: Wish) -> None:
    typed = [*wish.options, *wish.extra]
    shown = [f"{k}={v}" for k, v in wish.env.items()]
    if redact.argv(typed) != typed or redact.argv(shown) != shown:
        raise UsageError(
            "a secret would stand in the unit, which everybody may read",
            usual="A key belongs into a file that its owner alone can read.",
            hint="--api-key-file FILE",
        )
    _no_breaks((*typed, *shown, *wish.launcher.argv))
    if not wish.user and wish.run_as in ("", "root"):
        raise UsageError(
            "a server does not run as root",
            usual="The user must own the state root and be able to read the model.",
            hint="--run-as USER",
        )
    if wish.systemd is not None and wish.systemd < OLDEST:
        raise CannotError(
            f"systemd {wish.systemd} is too old for these units; {OLDEST} is the first",
            hint="invoke serve-tp2 --foreground in another supervisor",
        )
    if wish.plan.port < _PORTS_OF_ROOT:
        raise UsageError(
            f"port {wish.plan.port} is for root alone",
            hint="--port 8000, and a router in front: invoke serve-router --kind nginx",
        )


def _no_breaks(texts: Sequence[str]) -> None:
    before = ""
    for text in texts:
        if any(char in text for char in "\n\r\0"):
            name = text.partition("=")[0] if text.startswith("-") else before
            whose = f"the value of {name}" if name.startswith("-") else repr(text)
            raise UsageError(
                f"{whose} holds a line break, which no unit can hold",
                hint=f"{name} FILE, with that text in it"
                if name == "--chat-template"
                else "leave it out, or choose another name",
            )
        before = text


def _notes(wish: Wish) -> list[str]:
    notes = []
    if wish.plan.cards and not wish.user:
        notes.append(
            "cards must be there before it starts: with /dev/nvidia-uvm missing after "
            "a boot, write nvidia-uvm into /etc/modules-load.d/nvidia-uvm.conf"
        )
    if wish.user:
        notes.append(
            "it starts at boot, and not only when you log in, after: loginctl "
            "enable-linger"
        )
        notes.append(
            "what your own systemd cannot prevent: packets may leave this machine, no "
            "device is closed, and /dev/shm is everybody's; a unit of the system "
            "(without --user) is closed there"
        )
    if wish.user and not wish.namespaces:
        notes.append(
            "this kernel lets users make no namespaces: the unit is closed in less, "
            "and a unit of the system (without --user) is the better one"
        )
    if not wish.user and is_loopback(wish.plan.host):
        notes.append("its packets stay on this machine: nothing is fetched by it")
    notes.append(
        "stop it with systemctl, or with serve-stop: systemd leaves it stopped then; "
        "after any other end it starts it again"
    )
    return notes
