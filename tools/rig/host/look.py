# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Facts about disks that may hang: each question goes to a child that can be left."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base import abandon, run
from tools.rig.base.errors import StepFailed, quoted
from tools.rig.host import storage
from tools.rig.host.storage import Mount, Rates

LIMIT_S = 15.0
"""Seconds after which a disk that has not answered counts as stuck."""

_CHILD = Path(__file__).with_name("look_child.py")

Ask = Callable[..., run.Result]


class Hung(StepFailed):
    """A disk does not answer; ``mount`` is the one that was touched last."""

    def __init__(
        self, place: str, mount: Mount, seconds: float, statistics: tuple[str, ...] = ()
    ) -> None:
        self.mount = mount
        server = mount.source.partition(":")[0] if ":" in mount.source else ""
        super().__init__(
            f"no answer from {place} within {seconds:.0f} s: the disk mounted on "
            f"{mount} hangs",
            usual="Its server is away or the network is cut; processes that touch it "
            "wait in the kernel and cannot be ended.",
            hint=f"ping {server}"
            if server
            else f"grep -F {shlex.quote(f' {mount.point} ')} /proc/self/mountinfo",
            details=statistics,
        )


@dataclass(frozen=True)
class Disk:
    """What is known of the place for a folder, which need not exist yet.

    ``free_inodes`` is :data:`storage.UNLIMITED` where they are made as needed. ``made``
    tells that the suite made the folder. ``rates`` is None where it was not measured.
    ``links`` tells whether symbolic links can be made. ``problem`` says why nothing
    can be written, or that the disk hangs; ``details`` are statistics of a hung mount.
    """

    path: Path
    real: Path
    mount: Mount
    exists: bool = False
    owner: int | None = None
    made: bool = False
    empty: bool = True
    writable: bool = False
    free_bytes: int = 0
    free_inodes: int = 0
    rates: Rates | None = None
    links: bool | None = None
    hung: bool = False
    problem: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Link:
    """The state of a name: ``absent``, ``link``, ``directory`` or ``file``.

    For a link: ``target`` as written, ``real`` after following, ``exists`` its target,
    ``made`` that it leads to an environment in a state root which this user made.
    """

    kind: str
    target: str = ""
    real: str = ""
    exists: bool = False
    made: bool = False


@dataclass(frozen=True)
class Checkout:
    """A checkout as it lies on its disk. ``pyproject`` is the text of that file."""

    path: Path
    real: Path
    place: str
    owner: int
    writable: bool
    link: Link
    pyproject: str = ""


def disk(
    path: Path,
    *,
    measure_s: float = 0.5,
    skip: tuple[str, ...] = ("network", "memory"),
    known: Mapping[str, Rates] | None = None,
    limit_s: float = LIMIT_S,
    ask: Ask = abandon.ask,
) -> Disk:
    """Look at the disk where `path` lies or would lie; never hangs, never raises.

    Parameters
    ----------
    path
        A folder.
    measure_s
        Seconds to spend on metadata rates; 0 measures nothing.
    skip
        Kinds of file systems (:func:`storage.kind`) that are not worth measuring.
    known
        Rates of devices (``Mount.device``) that need not be measured again.
    limit_s
        Seconds until the disk counts as stuck.
    ask
        Runs the child.
    """
    known = known or {}
    request = {
        "op": "disk",
        "path": str(path),
        "measure_s": measure_s,
        "skip": skip,
        "known": list(known),
    }
    try:
        got = question(request, limit_s + measure_s, ask)
    except Hung as exc:
        return Disk(
            path, path, exc.mount, hung=True, problem=exc.what, details=exc.details
        )
    except StepFailed as exc:
        mount = storage.mount_of(path, resolve=False)
        return Disk(path, path, mount, problem=exc.what)
    mount = Mount(**{**got["mount"], "point": Path(got.pop("mount")["point"])})
    measured = got.pop("rates")
    rates = Rates(**measured) if measured else None
    if rates is None and measure_s and storage.kind(mount.fs) not in skip:
        rates = known.get(mount.device)
    real = Path(got.pop("real"))
    return Disk(path=path, real=real, mount=mount, rates=rates, **got)


def checkout(
    path: Path,
    link: str = ".venv",
    *,
    limit_s: float = LIMIT_S,
    ask: Ask = abandon.ask,
) -> Checkout:
    """Look at a checkout and at the name `link` in it.

    Raises
    ------
    Hung
        When its disk does not answer within `limit_s` seconds.
    StepFailed
        When it is no folder, or cannot be looked at.
    """
    request = {"op": "checkout", "path": str(path), "link": link}
    got = question(request, limit_s, ask)
    if not got.pop("exists"):
        raise StepFailed(f"{path} is no folder", hint=f"ls -ld {quoted(path)}")
    return Checkout(
        path=path, real=Path(got.pop("real")), link=Link(**got.pop("link")), **got
    )


def text(
    path: Path, *, limit_s: float = LIMIT_S, ask: Ask = abandon.ask
) -> tuple[str | None, str]:
    """Return the text of a file (None where there is none) and why it is unreadable.

    Raises
    ------
    Hung
        When the disk does not answer.
    """
    got = question({"op": "read", "path": str(path)}, limit_s, ask)
    return got["text"], got["problem"]


def make_link(
    link: Path,
    target: Path,
    instead: str = "",
    *,
    limit_s: float = LIMIT_S,
    ask: Ask = abandon.ask,
) -> str:
    """Make a symbolic link; return why it could not be made, or nothing.

    What is already there is never replaced, except a link whose target is `instead`.

    Raises
    ------
    Hung
        When the disk does not answer.
    """
    request = {"op": "link", "link": str(link), "target": str(target)}
    got = question({**request, "instead": instead}, limit_s, ask)
    return str(got["problem"])


def _look_at(request: Mapping[str, Any]) -> str:
    """Return the command that shows what a question was about."""
    return f"ls -ld {quoted(Path(request.get('path') or request['link']))}"


def question(
    request: dict[str, Any], limit_s: float, ask: Ask = abandon.ask
) -> dict[str, Any]:
    """Put one request to a child (see :mod:`tools.rig.host.look_child`).

    Raises
    ------
    Hung
        When no answer came within `limit_s` seconds.
    StepFailed
        When the child failed.
    """
    argv = [sys.executable, "-I", os.fspath(_CHILD)]
    got = ask(argv, timeout=limit_s, input_text=json.dumps(request))
    lines = got.out.splitlines()
    if got.timed_out:
        # without a word it hung while it started: then our own disk is the stuck one
        last = os.fspath(_CHILD)
        for line in lines:
            if line.startswith("@ "):
                last = json.loads(line[2:])
        mount = storage.mount_of(Path(last), resolve=False)
        raise Hung(last, mount, limit_s, storage.mount_statistics(mount.point))
    if not got.ok or not lines:
        said = got.err.strip().splitlines()
        raise StepFailed(
            f"cannot look at {request.get('path', request.get('link'))}",
            details=said[-3:],
            hint=_look_at(request),
        )
    out: dict[str, Any] = json.loads(lines[-1])
    if "error" in out:
        raise StepFailed(
            f"cannot look at {request.get('path')}: {out['error']}",
            hint=_look_at(request),
        )
    return out
