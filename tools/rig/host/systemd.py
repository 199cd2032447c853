# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What this machine's systemd is, if it has one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.run import run

BOOTED = Path("/run/systemd/system")
"""Is there where systemd is PID 1 (sd_booted(3))."""

_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0"),
    ("user/max_user_namespaces", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
)
"""Below /proc/sys, with the value that keeps users from making namespaces: Debian's
own, the kernel's, and Ubuntu's since 23.10."""

_VERSION_S = 10.0


@dataclass(frozen=True)
class Systemd:
    """What was found.

    Attributes
    ----------
    booted
        Whether it is what runs this machine.
    version
        None: unknown, or it is not installed.
    no_namespaces
        Why a user's own units cannot be put into namespaces; empty: they can.
    """

    booted: bool
    version: int | None
    no_namespaces: str = ""


def read(booted: Path = BOOTED, sysctl: Path = Path("/proc/sys")) -> Systemd:
    """Look at this machine's systemd.

    Parameters
    ----------
    booted, sysctl
        Where to look.
    """
    said = run(["systemctl", "--version"], timeout=_VERSION_S)
    found = re.match(r"systemd (\d+)", said.out) if said.ok else None
    return Systemd(
        booted=booted.is_dir(),
        version=int(found[1]) if found else None,
        no_namespaces=_refusal(sysctl),
    )


def _refusal(sysctl: Path) -> str:
    for name, closed in _SWITCHES:
        try:
            value = (sysctl / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if value == closed:
            return f"{os.fspath(sysctl / name)} is {value}"
    return ""
