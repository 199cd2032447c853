# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What ``serve-router`` writes for each router, and what is to be said about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.errors import ExitCode, unwritable
from tools.rig.base.state import put, write_text
from tools.rig.serve import ports, probe
from tools.rig.serve.router_check import Checked
from tools.rig.serve.routers import litellm, llama_swap, nginx
from tools.rig.serve.routers.backend import Backend
from tools.rig.serve.routers.nginx import Site
from tools.rig.serve.safe import is_loopback
from tools.rig.serve.shares import Shares

KINDS = ("llama-swap", "litellm", "nginx")


@dataclass(frozen=True)
class Wish:
    """What the endpoint shall be.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    name
        Names the files; the first model's when empty.
    host, port
        Where the router listens.
    api_key_file
        Holds the key that clients must send; None: none is asked for.
    insecure
        Listen for other machines without a key.
    certificate, certificate_key
        Files for TLS, with nginx alone.
    memory
        Bytes that a card gives to programs, to plan shares for models that stay on the
        same cards; 0: one model at a time.
    idle_s
        Seconds after which llama-swap unloads a model that nobody asks for; 0: never.
    """

    kind: str
    name: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    api_key_file: Path | None = None
    insecure: bool = False
    certificate: Path | None = None
    certificate_key: Path | None = None
    memory: int = 0
    idle_s: int = 0


@dataclass(frozen=True)
class Routed:
    """What ``serve-router`` wrote; ``start`` are the commands that bring it to life."""

    kind: str
    files: tuple[str, ...]
    models: tuple[str, ...]
    shares: dict[str, float]
    problems: tuple[str, ...]
    unknown: str
    notes: tuple[str, ...]
    start: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 when the router's own program finds something wrong."""
        return ExitCode.FAILED if self.problems else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def write_llama_swap(
    backends: Sequence[Backend], wish: Wish, file: Path, planned: Shares | None
) -> Routed:
    """Write llama-swap's file."""
    fitting = planned.shares if planned is not None and planned.fits else None
    key = wish.api_key_file
    listen = ports.joined(wish.host, wish.port)
    text = llama_swap.config(
        backends,
        key=key is not None,
        shares=fitting,
        idle_s=wish.idle_s,
        listen=listen,
    )
    write_text(file, text)
    command = llama_swap.command(os.fspath(file), listen)
    notes = [planned.why] if planned else []
    if fitting is None and len(backends) > 1:
        notes.append("one model at a time: asking for one unloads the others")
    if any(one.api_key_file for one in backends):
        notes.append("the models' own keys are not used: they listen on this machine")
    return Routed(
        kind=wish.kind,
        files=(os.fspath(file),),
        models=_models(backends),
        shares=dict(fitting or {}),
        problems=(),
        unknown="llama-swap reads its file when it starts: it is unread until then",
        notes=tuple(notes),
        start=(_with_keys([(llama_swap.KEY, key)], command),),
    )


def write_litellm(
    backends: Sequence[Backend], wish: Wish, file: Path, planned: Shares | None
) -> Routed:
    """Write LiteLLM's file."""
    key = wish.api_key_file
    write_text(file, litellm.config(backends, key=key is not None))
    wanted = {**litellm.keys(backends), litellm.KEY: key}
    command = litellm.command(os.fspath(file), wish.host, wish.port)
    notes = [planned.why] if planned else []
    if key is None:
        notes.append(
            "without --api-key-file everybody who reaches it also has LiteLLM's own "
            "pages, where models can be changed"
        )
    if planned is not None and not planned.fits:
        notes.append(
            "models that do not fit at once: invoke serve-router --kind llama-swap"
        )
    return Routed(
        kind=wish.kind,
        files=(os.fspath(file),),
        models=_models(backends),
        shares=dict(planned.shares) if planned else {},
        problems=(),
        unknown="LiteLLM reads its file when it starts: it is unread until then",
        notes=tuple(notes),
        start=(_with_keys(wanted.items(), command),),
    )


def write_nginx(
    backends: Sequence[Backend],
    wish: Wish,
    file: Path,
    check: Callable[[Path], Checked],
) -> Routed:
    """Write an nginx site, with its file of keys, and have it read."""
    keys, known = None, ""
    if wish.api_key_file:
        known = nginx.key_map(probe.read_key(wish.api_key_file))
        keys = file.with_suffix(".keys").absolute()
    site = Site(
        name=wish.name or backends[0].name,
        host=wish.host,
        port=wish.port,
        anybody=not is_loopback(wish.host),
        key_map=keys,
        certificate=wish.certificate,
        certificate_key=wish.certificate_key,
    )
    text = nginx.config(backends, site)
    files = [file]
    if keys is not None:
        # first, since the site names it
        _write_private(keys, known)
        files.append(keys)
    write_text(file, text)
    found = check(file)
    notes = ["take a replica out before you stop it: write down behind it and reload"]
    if keys is None and any(one.api_key_file for one in backends):
        notes.append("each replica asks for its own key: give all of them the same")
    elif not all(_same_key(one, wish) for one in backends):
        notes.append(
            "a replica asks for another key than this one, which is passed on: it will "
            "refuse every request"
        )
    return Routed(
        kind=wish.kind,
        files=tuple(map(os.fspath, files)),
        models=_models(backends),
        shares={},
        problems=found.problems,
        unknown=found.unknown,
        notes=tuple(notes),
        start=(
            shlex.join(nginx.command(os.fspath(file))),
            "sudo nginx -t && sudo nginx -s reload",
        ),
    )


def _same_key(one: Backend, wish: Wish) -> bool:
    if one.api_key_file is None or wish.api_key_file is None:
        return True
    return probe.read_key(one.api_key_file) == probe.read_key(wish.api_key_file)


def _models(backends: Sequence[Backend]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name for one in backends))


def _with_keys(keys: Iterable[tuple[str, Path | None]], command: Sequence[str]) -> str:
    """Return a command line whose keys come out of files when it is typed."""
    given = [
        f'{name}="$(cat {shlex.quote(os.fspath(file))})"' for name, file in keys if file
    ]
    return " ".join([*given, shlex.join(command)])


def _write_private(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, text.encode(), 0o600)
    except OSError as exc:
        raise unwritable(path, exc) from exc
