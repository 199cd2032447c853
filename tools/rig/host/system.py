# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The machine below everything: distribution, glibc, container, kernel module, proxies.

Every function takes the place it reads as a parameter, so that another machine can be
described by a folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import regex as re

_OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))
_LOCAL_HOSTS = ("localhost", "127.0.0.1")
_MODULE = re.compile(r"NVRM version:.*?Kernel Module(?P<open>.*?)\s(?P<v>\d+[\d.]+)\s")
_DEFINE = re.compile(r"^#\s*define\s+__GLIBC(_MINOR)?__\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Distribution:
    """What os-release says; empty strings where it says nothing."""

    id: str
    version: str
    name: str
    codename: str = ""
    like: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """``debian``, ``rhel``, or empty: whose package names and tools apply."""
        kin = (self.id, *self.like)
        if "debian" in kin or "ubuntu" in kin:
            return "debian"
        return "rhel" if {"rhel", "fedora", "centos"} & set(kin) else ""


@dataclass(frozen=True)
class Module:
    """The loaded NVIDIA kernel module; ``flavour`` is ``proprietary`` or ``open``."""

    version: str
    flavour: str


def distribution(places: tuple[Path, ...] = _OS_RELEASE) -> Distribution:
    """Return which distribution this is.

    Parameters
    ----------
    places
        Files in the form of os-release(5); the first that can be read counts.
    """
    fields: dict[str, str] = {}
    for place in places:
        with contextlib.suppress(OSError):
            fields = _os_release(place.read_text(errors="replace"))
            break
    return Distribution(
        id=fields.get("ID", ""),
        version=fields.get("VERSION_ID", ""),
        name=fields.get("PRETTY_NAME", "") or fields.get("NAME", ""),
        codename=fields.get("VERSION_CODENAME", ""),
        like=tuple(fields.get("ID_LIKE", "").split()),
    )


def glibc() -> str:
    """Return the version of the running C library, like ``2.36``; empty for another."""
    with contextlib.suppress(ValueError, OSError):
        name, _, number = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        if name == "glibc" and number:
            return number
    with contextlib.suppress(AttributeError, OSError):
        ask = ctypes.CDLL(None).gnu_get_libc_version
        ask.restype = ctypes.c_char_p
        return bytes(ask()).decode()
    return ""


def glibc_headers(include: Path = Path("/usr/include")) -> str:
    """Return the version of the C library's headers, which is what a compiler meets.

    It differs from :func:`glibc` in a container or sysroot. Empty when no development
    package is installed.
    """
    with contextlib.suppress(OSError):
        found = _DEFINE.findall((include / "features.h").read_text(errors="replace"))
        numbers = {minor: value for minor, value in found}
        if "" in numbers and "_MINOR" in numbers:
            return f"{numbers['']}.{numbers['_MINOR']}"
    return ""


def wsl(proc: Path = Path("/proc")) -> bool:
    """Say whether this is Linux under Windows: its kernel names Microsoft."""
    with contextlib.suppress(OSError):
        text = (proc / "sys/kernel/osrelease").read_text(errors="replace")
        return "microsoft" in text.lower()
    return False


def container(root: Path = Path("/"), env: Mapping[str, str] | None = None) -> str:
    """Return what kind of container we are in, or an empty string.

    Parameters
    ----------
    root
        Where the marker files are looked for.
    env
        The environment; ours when None.
    """
    env = os.environ if env is None else env
    if env.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for marker, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if (root / marker).exists():
            return kind
    with contextlib.suppress(OSError):
        said = (root / "run/systemd/container").read_text(errors="replace").strip()
        if said:
            return said
    with contextlib.suppress(OSError):
        for entry in (root / "proc/1/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"container=") and len(entry) > len(b"container="):
                return entry.partition(b"=")[2].decode(errors="replace")
    # the value is the manager's own word: lxc, systemd-nspawn, podman, flatpak ...
    return "" if env.get("container") == "wsl" else env.get("container", "")


def kernel_module(proc: Path = Path("/proc")) -> Module | None:
    """Return the loaded NVIDIA kernel module, or None when there is none.

    The flavour is read from ``driver/nvidia/version``, where the open module calls
    itself ``Open Kernel Module``. An unreadable line gives empty fields.
    """
    try:
        text = (proc / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    line = next((ln for ln in text.splitlines() if "NVRM" in ln), "")
    found = _MODULE.search(line + " ")
    if not found:
        return Module("", "")
    return Module(found["v"], "open" if "Open Kernel" in line else "proprietary")


def shm_bytes(place: Path = Path("/dev/shm")) -> int | None:
    """Return the size of shared memory in bytes; None when it is not there."""
    try:
        stat = os.statvfs(place)
    except OSError:
        return None
    return stat.f_frsize * stat.f_blocks


def proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables that are set, by name; values may hold a password."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    return {k: v for k, v in env.items() if k.lower() in names and v}


def unproxied_gaps(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return which names of this machine itself would be asked for through a proxy.

    Empty without a proxy. ``NO_PROXY`` and ``no_proxy`` both count, as curl and Python
    read them: comma-separated, with or without a leading dot, ``*`` for everything.
    """
    if not proxies(env):
        return ()
    given = ",".join(env.get(k, "") for k in ("no_proxy", "NO_PROXY"))
    words = {word.strip().lstrip(".").lower() for word in given.split(",")}
    if "*" in words:
        return ()
    in_range = any(word.startswith("127.0.0.") and "/" in word for word in words)
    covered = words | ({"127.0.0.1"} if in_range or "127.0.0.0/8" in words else set())
    return tuple(host for host in _LOCAL_HOSTS if host not in covered)


def _os_release(text: str) -> dict[str, str]:
    fields = {}
    for line in text.splitlines():
        key, sep, value = line.strip().partition("=")
        if not sep or key.startswith("#"):
            continue
        # a value with an unbalanced quote is taken as it stands
        try:
            fields[key] = " ".join(shlex.split(value))
        except ValueError:
            fields[key] = value
    return fields
