# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the collectors of a bundle look at, what they bring, and how they are held."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.rig.base import run
from tools.rig.base.config import Settings, resolve
from tools.rig.base.errors import RigError
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import survey, target
from tools.rig.builds.profile import Profile
from tools.rig.builds.target import HERE
from tools.rig.host import gpu, processes
from tools.rig.steps.scene import settings_for

HEAD_BYTES = 64 << 10
TAIL_BYTES = 192 << 10
"""Bytes of the beginning and of the end that are taken of a file."""


@dataclass(frozen=True)
class Part:
    """One file of a bundle before anything is masked.

    ``content`` is a text, several stretches of one text, or plain data.
    """

    name: str
    content: Any


@dataclass
class Site:
    """Where a bundle is made, as far as that is known.

    ``facts`` are what the collectors tell the summary; ``problems`` what did not work.
    """

    env: Mapping[str, str]
    settings: Settings
    profile: Profile | None = None
    checkout: Path | None = None
    is_sample: bool = False
    root: StateRoot | None = None
    environment: Path | None = None
    proc: Path = processes.PROC
    run: Callable[..., run.Result] = run.run
    gpus: Callable[[], gpu.Gpus] = gpu.read
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Write down what did not work; the bundle goes on."""
        self.problems.append(problem)

    def ask(self, argv: Sequence[str], limit_s: float = 20, **how: Any) -> str | None:
        """Return what a program prints; None, with a note, when it does not work."""
        answer = self.run(argv, timeout=limit_s, **{"env": dict(self.env), **how})
        shown = " ".join(argv[:3])
        if answer.timed_out:
            self.note(f"{shown}: no answer within {limit_s:.0f} s")
        elif not answer.ok:
            said = (answer.err or answer.out).strip().splitlines()
            why = said[-1] if said else "it says nothing"
            self.note(f"{shown}: failed with status {answer.code} ({why})")
        else:
            return answer.out
        return answer.out or None


@dataclass(frozen=True)
class Collector:
    """One source of parts, and the seconds that it may take."""

    name: str
    collect: Callable[[Site], list[Part]]
    limit_s: float = 30


def locate(cli: Mapping[str, str], env: Mapping[str, str]) -> Site:
    """Return the site; whatever is broken about it becomes a note."""
    problems: list[str] = []
    try:
        settings = settings_for(cli, env)
    except RigError as exc:
        problems.append(f"settings: {exc.what}")
        settings = resolve({}, {})
    site = Site(env=env, settings=settings, problems=problems)
    try:
        found = target.find_here(settings)
        site.profile, site.is_sample = found.profile, found.is_sample
        site.checkout = found.path
    except RigError as exc:
        site.note(f"target: {exc.what}")
        site.checkout = settings.source
    if site.checkout is None and (HERE / ".git").exists():
        site.checkout = HERE
    site.root = _root(site)
    site.environment = _environment(site)
    return site


def collect(collectors: Sequence[Collector], site: Site) -> list[Part]:
    """Run collectors at the same time, and return the parts of those that answered.

    A thread cannot be ended: one that is past its limit is left behind, and its answer
    is thrown away.
    """
    done: queue.SimpleQueue[tuple[Collector, list[Part]]] = queue.SimpleQueue()

    def work(one: Collector) -> None:
        parts: list[Part] = []
        try:
            parts = one.collect(site)
        except RigError as exc:
            site.note(f"{one.name}: {exc.what}")
        # a broken machine breaks collectors in ways that nobody foresees, and the
        # report about it must come out all the same
        except Exception as exc:
            site.note(f"{one.name}: {type(exc).__name__}: {exc}")
        done.put((one, parts))

    start = time.monotonic()
    for one in collectors:
        threading.Thread(target=work, args=(one,), daemon=True).start()
    waiting = {one.name: one for one in collectors}
    got: dict[str, list[Part]] = {}
    while waiting:
        left = min(one.limit_s for one in waiting.values())
        with contextlib.suppress(queue.Empty):
            one, parts = done.get(timeout=max(0.01, left - time.monotonic() + start))
            if waiting.pop(one.name, None):
                got[one.name] = parts
        for name, one in list(waiting.items()):
            if time.monotonic() - start >= one.limit_s:
                site.note(f"{name}: no answer within {one.limit_s:.0f} s")
                del waiting[name]
    return [part for one in collectors for part in got.get(one.name, [])]


def excerpt(
    file: Path, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> tuple[str, ...]:
    """Return the beginning and the end of a file, cut where lines end.

    A word that is cut in two could be half a password, which nobody would know again;
    so a stretch without any gap is left out.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    with file.open("rb") as fh:
        size = os.fstat(fh.fileno()).st_size
        first = fh.read(head + tail if size <= head + tail else head)
        if size <= head + tail:
            return (_text(first),)
        fh.seek(-tail, os.SEEK_END)
        last = fh.read(tail)
    begun, ended = _text(first), _text(last)
    begun = begun.rpartition("\n" if "\n" in begun else " ")[0]
    ended = ended.partition("\n" if "\n" in ended else " ")[2]
    left = size - len(begun.encode()) - len(ended.encode())
    return (begun, f"\n[... {left} bytes are left out here ...]\n", ended)


def newest(folder: Path, pattern: str, count: int) -> list[Path]:
    """Return the files that were written last, the newest first."""
    dated: list[tuple[float, str, Path]] = []
    with contextlib.suppress(OSError):
        for file in folder.rglob(pattern):
            with contextlib.suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    dated.append((file.stat().st_mtime, file.name, file))
    return [file for _, _, file in sorted(dated, reverse=True)[:count]]


def _text(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    text = raw.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _root(site: Site) -> StateRoot | None:
    roots: list[Path | None] = []
    if site.settings.local_root is not None:
        named = site.settings.local_root
        roots += [named, named / survey.NAME]
    try:
        roots.append(survey.remembered_root(survey.remembered_file(site.env))[0])
        roots.append(survey.state_home(site.env))
    except (RigError, RuntimeError) as exc:
        site.note(f"state root: {exc}")
    there = [root for root in roots if root is not None and root.is_dir()]
    for root in there:
        if StateRoot(root).records.is_dir():
            return StateRoot(root)
    if there:
        return StateRoot(there[0])
    site.note("state root: there is none, so nothing was built here")
    return None


def _environment(site: Site) -> Path | None:
    named: list[Path] = []
    if site.checkout is not None:
        named.append(site.checkout / ".venv")
        if site.root is not None:
            named.append(site.root.venvs / place_id(site.checkout))
    if site.root is not None:
        with contextlib.suppress(OSError):
            named += sorted(site.root.venvs.iterdir())
    return next((path.resolve() for path in named if path.is_dir()), None)
