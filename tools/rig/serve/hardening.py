# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a unit takes away from a server, and what a server on a GPU must keep.

Kept on purpose: writable and executable memory (kernels are compiled while it runs),
the calls that place memory on NUMA nodes, `pidfd_getfd` (cards share buffers by it),
all of /proc (memory and processors are read there) and network interfaces' names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re

LIMIT = 4.0
"""Most exposure (0 to 10) that ``systemd-analyze security`` may find in a unit."""

CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm-config",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "nv",
    "HF_MODULES_CACHE": "hf-modules",
}
"""Variables that lead caches out of a home that may only be read, to folders below the
state root's cache."""

OF_ONE_MACHINE = {
    "VLLM_HOST_IP": "127.0.0.1",
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Variables for a server whose packets may not leave this machine: its ranks would find
each other by an address of the network otherwise."""

_NO_NAMESPACE = """\
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
KeyringMode=private
UMask=0077
SystemCallArchitectures=native
SystemCallFilter=@system-service pidfd_getfd
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"""

_NAMESPACES = """\
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateIPC=yes"""

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:,+=@-]*+|--?[A-Za-z0-9][\w=.-]*+")

_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))


@dataclass(frozen=True)
class Sandbox:
    """How a unit is closed in.

    Attributes
    ----------
    user
        It belongs to a user's own systemd, which may neither filter packets nor
        devices, and needs a user namespace for every other one.
    namespaces
        Whether namespaces can be made; without them a user's unit is closed in less.
    cards
        Whether it uses cards.
    loopback
        Whether it listens on this machine alone; then its packets stay here.
    own_shm
        Whether it gets a /dev/shm of its own, so that nothing is left in the machine's
        whatever ends it.
    writable
        Folders that it may write to.
    read
        Folders that it must find; where one lies in /tmp, that is not made private.
    """

    user: bool = False
    namespaces: bool = True
    cards: bool = True
    loopback: bool = True
    own_shm: bool = True
    writable: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()

    def lines(self) -> list[str]:
        """Return the lines of the section ``[Service]``."""
        lines = _NO_NAMESPACE.splitlines()
        if self.user and not self.namespaces:
            return lines
        lines += _NAMESPACES.splitlines()
        if self.user:
            lines.append("PrivateUsers=yes")
        writable = [*self.writable]
        if any(_is_temporary(path) for path in (*self.writable, *self.read)):
            # all else may only be read, and without a temporary folder Python ends
            writable += [top for top in _TEMPORARY if top not in writable]
        else:
            lines.append("PrivateTmp=yes")
        if writable:
            lines.append(f"ReadWritePaths={words(map(os.fspath, writable))}")
        return lines if self.user else [*lines, *self._of_the_system()]

    def _of_the_system(self) -> list[str]:
        # ProtectClock= lists a device, and any list shuts out all that it does not name
        lines = ["DevicePolicy=closed"]
        if self.cards:
            lines.append("DeviceAllow=char-nvidia* rw")
        if self.own_shm:
            # mount options are handed on as they are: a doubled % would stay doubled
            lines.append("TemporaryFileSystem=/dev/shm:mode=1777,size=50%")
        if self.loopback:
            lines += ["IPAddressDeny=any", "IPAddressAllow=localhost"]
        return lines


def word(text: str, *, command: bool = False) -> str:
    """Return one word as a unit file has it.

    Parameters
    ----------
    command
        It stands in a command line, where ``$`` begins a variable.
    """
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if command:
        text = text.replace("$", "$$")
    text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    return f'"{text}"'


def words(texts: Iterable[str], *, command: bool = False) -> str:
    """Return several words as a unit file has them."""
    return " ".join(word(text, command=command) for text in texts)


def command(argv: Sequence[str]) -> str:
    """Return a command line as a unit file has it.

    systemd takes no quotes, backslashes and dollars in a program's own path; those are
    left to ``env``.
    """
    program, *rest = argv
    if any(char in program for char in "\\\"'$"):
        return f"/usr/bin/env {words(argv, command=True)}"
    return " ".join([word(program), words(rest, command=True)])


def _escaped(char: str) -> str:
    # bytes that are no UTF-8 arrive as surrogates
    return "".join(f"\\x{b:02x}" for b in char.encode("utf-8", "surrogateescape"))


def _is_temporary(path: Path) -> bool:
    return any(path == top or top in path.parents for top in _TEMPORARY)
