# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who and where we are, read only so that it can be masked in what strangers see."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.rig.base.anonymous import Known
from tools.rig.host import processes
from tools.rig.host.credentials import text_of


def identity(
    env: Mapping[str, str],
    *,
    checkout: Path | None = None,
    root: Path = Path("/"),
    proc: Path = processes.PROC,
    fqdn: Callable[[], str] = socket.getfqdn,
) -> Known:
    """Return who and where we are: users, hosts, domains, homes, ids; no secrets.

    Parameters
    ----------
    env
        Our environment.
    checkout
        Its owner counts as a user.
    root
        Where ``etc`` lies.
    proc
        The place of /proc.
    fqdn
        Asks for the full name of this host.
    """
    users, homes = _users(env, checkout, root)
    hosts, domains = _hosts(env, root, fqdn)
    ids = [_line(root / "etc/machine-id"), _line(root / "var/lib/dbus/machine-id")]
    ids.append(processes.boot_id(proc))
    ids.append(processes.boot_id(proc).replace("-", ""))
    for name in ("product_uuid", "product_serial", "board_serial", "chassis_serial"):
        ids.append(_line(root / "sys/class/dmi/id" / name))
    return Known(
        users=_unique(users),
        hosts=_unique(hosts),
        domains=_unique(domains),
        homes=_unique(homes),
        ids=tuple(i for i in _unique(ids) if len(i) >= 8),
    )


def _users(
    env: Mapping[str, str], checkout: Path | None, root: Path
) -> tuple[list[str], list[str]]:
    names = ("USER", "LOGNAME", "SUDO_USER", "USERNAME", "DOAS_USER")
    users = [env.get(name, "") for name in names]
    homes = [env.get("HOME", "")]
    numbers = [os.getuid(), os.geteuid()]
    for variable in ("SUDO_UID", "PKEXEC_UID"):
        if env.get(variable, "").isdigit():
            numbers.append(int(env[variable]))
    if checkout is not None:
        with contextlib.suppress(OSError):
            numbers.append(checkout.stat().st_uid)
    for number in dict.fromkeys(numbers):
        with contextlib.suppress(KeyError, OverflowError):
            entry = pwd.getpwuid(number)
            users.append(entry.pw_name)
            homes.append(entry.pw_dir)
            # the name of a person stands in the first field
            users.append(entry.pw_gecos.partition(",")[0])
    users += _colleagues(root)
    home = homes[0].rstrip("/")
    if home.startswith(("/home/", "/Users/")):
        users.append(home.rpartition("/")[2])
    return users, [h for h in homes if len(h) > 1 and h not in ("/nonexistent", "/tmp")]


def _colleagues(root: Path) -> Iterator[str]:
    """Yield the people who have an account here; their processes stand in logs."""
    for line in text_of(root / "etc/passwd", lambda problem: None).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit() and 1000 <= int(fields[2]) < 60_000:
            yield fields[0]


def _hosts(
    env: Mapping[str, str], root: Path, fqdn: Callable[[], str]
) -> tuple[list[str], list[str]]:
    hosts = [os.uname().nodename, env.get("HOSTNAME", ""), _line(root / "etc/hostname")]
    with contextlib.suppress(OSError):
        hosts.append(fqdn())
    own = {host.partition(".")[0].lower() for host in hosts if host}
    for line in text_of(root / "etc/hosts", lambda problem: None).splitlines():
        words = line.partition("#")[0].split()[1:]
        hosts += [w for w in words if w.partition(".")[0].lower() in own]
    domains = [host.partition(".")[2] for host in hosts if not host[:1].isdigit()]
    for line in text_of(root / "etc/resolv.conf", lambda problem: None).splitlines():
        key, *words = line.split() or [""]
        if key in ("search", "domain"):
            domains += [word.strip(".") for word in words if "." in word.strip(".")]
    local = ("localhost", "localdomain")
    short = [host.partition(".")[0] for host in hosts]
    return (
        [h for h in short if h and not h.isdigit() and not h.startswith(local)],
        [d for d in domains if "." in d and not d.startswith(local)],
    )


def _line(file: Path) -> str:
    return text_of(file, lambda problem: None).strip()


def _unique(values: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.strip() for value in values if value.strip()))
