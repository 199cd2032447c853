# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a server of ours may not be started with: open to others, keys in the open."""

from __future__ import annotations

import ipaddress
import os
import shlex
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.rig.serve import probe
from tools.rig.serve.flags import Read
from tools.rig.serve.foreign import shown
from tools.rig.serve.parser import Parser
from tools.rig.serve.problem import Problem

REFUSED = {
    "api_key": "everybody on this machine can read a key on a command line|"
    "--api-key-file FILE",
    "hf_token": "everybody on this machine can read a token on a command line|"
    "HF_TOKEN=... in the environment",
    "model": "the model is named once|--model FOLDER before the --",
    "uds": "a server on a socket in a folder cannot be asked by port|leave it out",
    "ssl_certfile": "we ask a server without TLS, which a router adds|"
    "invoke serve-router",
    "ssl_keyfile": "we ask a server without TLS, which a router adds|"
    "invoke serve-router",
    "grpc": "we ask a server by HTTP|leave it out",
    "headless": "a server without an API cannot be asked|leave it out",
}
"""Options of vLLM that a server of ours cannot have: why, and what to do."""


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        # shorter forms are addresses as well (``inet_aton(3)``), 127.1 for one; what
        # stands behind a blank would be passed over
        short = "" if host.split() != [host] else host
        return ipaddress.IPv4Address(socket.inet_aton(short)).is_loopback
    except OSError:
        return host == "localhost"


def refused(rest: Read) -> list[Problem]:
    """Return what of the words for vLLM cannot be."""
    found = []
    for given in rest.given:
        if given.option.dest == "hf_token" and not given.values:
            # the one that huggingface_hub keeps
            continue
        why, _, hint = REFUSED.get(given.option.dest, "").partition("|")
        if why:
            found.append(Problem(f"{given.flag} is not for here: {why}", hint))
    return found


def of_names(rest: Read) -> list[Problem]:
    """Return what is wrong with the names that clients are to ask for.

    A line break or an escape in one would reach logs, terminals and files of routers.
    """
    given = rest.last("served_model_name")
    for name in given.values if given is not None else ():
        if not name or not name.isprintable():
            what = f"a model cannot be called {shown(repr(name))}"
            if name:
                what += ": there is a line break, or something alike, in it"
            return [Problem(what, "--served-name qwen")]
    return []


def open_to_others(
    host: str,
    parser: Parser,
    env: Mapping[str, str],
    *,
    key_file: Path | None,
    insecure: bool,
) -> tuple[list[Problem], list[str]]:
    """Return what is wrong with who can reach a server, and what to know of it.

    Parameters
    ----------
    env
        Where a key may be.
    key_file
        The file that holds one.
    insecure
        Whether people said that none is needed.
    """
    name = probe.KEY
    has_key = key_file is not None or bool(env.get(name))
    if has_key and parser.variables and name not in parser.variables:
        what = f"vLLM {parser.version} takes no API key from a variable"
        hint = "a newer vLLM, or a key in nginx: invoke serve-router"
        return [Problem(what, hint)], []
    notes = []
    if has_key and key_file is None:
        notes.append(f"clients need the API key that is in {name}")
    if is_loopback(host) or has_key:
        return [], notes
    if insecure:
        return [], [f"anybody who reaches {host} can use it: no API key"]
    what = f"others could reach {host}, and there is no API key"
    return [Problem(what, "--api-key-file FILE, or --insecure")], notes


def of_key(file: Path | None) -> Iterator[Problem]:
    """Yield what is wrong with a file that holds a key."""
    if file is None:
        return
    quoted = shlex.quote(os.fspath(file))
    if not probe.read_key(file):
        yield Problem(
            f"there is no key in {file}",
            f"(umask 077; openssl rand -hex 32 > {quoted})",
        )
    elif stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Problem(f"others can read the key in {file}", f"chmod 600 {quoted}")
