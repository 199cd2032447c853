# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether the user of a unit can reach everything that its server needs.

Who writes the unit often can, being root; the server, which is not, would end at once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.run import run
from tools.rig.serve import documents, reach_child
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.unit_text import Launcher

LIMIT_S = 60.0
_CHILD = Path(reach_child.__file__)
_READ = (".safetensors", ".json", ".gguf", *documents.TOKENIZERS)
_VERBS = {"r": "read", "rx": "read", "x": "run", "wx": "write to"}


@dataclass(frozen=True)
class Need:
    """A path, and letters of what must be possible with it: ``r``, ``w``, ``x``."""

    path: Path
    modes: str = "r"


@dataclass(frozen=True)
class Reached:
    """What a user cannot reach, in words, and why that could not be told."""

    problems: tuple[str, ...] = ()
    unknown: str = ""


Ask = Callable[[str, Sequence[Need]], "list[str | None] | None"]


def needs(plan: ServePlan, start: Launcher, root: Path) -> list[Need]:
    """Return what a server needs of the files that are here, in the order of use."""
    own = [Path(start.argv[0])] if start.argv else []
    found = [Need(path, "x") for path in own]
    if os.fspath(sys.executable) in start.argv[:1]:
        # an interpreter is more than its program
        invoke = importlib.util.find_spec("invoke")
        origins = [os.__file__, invoke.origin if invoke else None]
        found += [Need(Path(origin)) for origin in origins if origin]
    found += [Need(start.folder, "rx"), Need(start.folder / "tasks.py")]
    found += [Need(plan.environment, "rx"), Need(plan.python, "x")]
    found += [Need(p, "rx") for p in plan.environment.glob("lib/python*/site-packages")]
    found.append(Need(plan.model, "rx" if plan.model.is_dir() else "r"))
    try:
        names = sorted(os.listdir(plan.model))
    except OSError:
        names = []
    found += [Need(plan.model / name) for name in names if name.endswith(_READ)]
    # templates, plugins and files of options that were named behind the dashes
    named = [Path(word.rpartition("=")[2]) for word in (*plan.argv, *plan.rest)]
    found += [
        Need(path, "rx" if os.path.isdir(path) else "r")
        for path in dict.fromkeys(named)
        if path.is_absolute() and path not in (plan.model, plan.python)
    ]
    found += [Need(plan.api_key_file)] if plan.api_key_file else []
    found += [Need(path, "wx") for path in (root, root / "servers")]
    return [need for need in found if _is_here(need.path)]


def look(user: str, wanted: Sequence[Need], ask: Ask | None = None) -> Reached:
    """Return which of some paths a user cannot reach.

    Parameters
    ----------
    user
        Its name; our own when empty.
    ask
        What asks the system with the rights of that user; None for what it cannot.
    """
    answer = (ask or with_rights_of)(user, wanted)
    if answer is None:
        return Reached(
            unknown=f"whether {user} can read what it serves was not looked at: root "
            "alone can ask for another user"
        )
    who = user or "this user"
    by_place: dict[str, list[Need]] = {}
    for need, place in zip(wanted, answer, strict=True):
        if place is not None:
            by_place.setdefault(place, []).append(need)
    return Reached(tuple(_said(who, place, its) for place, its in by_place.items()))


def with_rights_of(user: str, wanted: Sequence[Need]) -> list[str | None] | None:
    """Return for each path what is closed to a user; None where nobody can say.

    Parameters
    ----------
    user
        Its name; our own when empty.
    """
    asked = [(os.fspath(need.path), need.modes) for need in wanted]
    try:
        entry = pwd.getpwnam(user) if user else None
    except KeyError:
        return None
    if entry is None or entry.pw_uid == os.geteuid():
        return reach_child.all_closed(asked)
    if os.geteuid() != 0:
        return None
    order = {"name": user, "uid": entry.pw_uid, "gid": entry.pw_gid, "asked": asked}
    said = run(
        [sys.executable, "-I", _CHILD],
        cwd="/",
        timeout=LIMIT_S,
        input_text=json.dumps(order),
    )
    try:
        found = json.loads(said.out) if said.ok else None
    except ValueError:
        found = None
    return found if isinstance(found, list) and len(found) == len(asked) else None


def _is_here(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        # a word that only looks like a path may be too long for one
        return False


def _said(who: str, place: str, needs_: Sequence[Need]) -> str:
    first = needs_[0]
    what = f"{who} cannot {_VERBS.get(first.modes, 'use')} {first.path}"
    if len(needs_) > 1:
        what += f" and {len(needs_) - 1} more"
    quoted = shlex.quote(place)
    if place != os.fspath(first.path):
        return f"{what}: {place} is closed; move it, or: chmod o+x {quoted}"
    return f"{what}: {_way(who, first, quoted)}"


def _way(who: str, need: Need, quoted: str) -> str:
    """Return what makes one path reachable; a key stays closed to all others."""
    is_file = need.path.is_file()
    if "w" in need.modes or (is_file and not need.path.stat().st_mode & 0o077):
        return f"sudo chown {shlex.quote(who)} {quoted}"
    return f"chmod o+{need.modes} {quoted}"
