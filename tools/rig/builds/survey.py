# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Gathers what the choice of a place rests on: disks, the checkout, Pythons.

Reads only, except for the small files that the measurement makes and removes.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base import run
from tools.rig.base.config import Settings
from tools.rig.base.errors import StepFailed, put_aside
from tools.rig.base.killed import was_killed
from tools.rig.base.paths import checked_path
from tools.rig.base.process import no_room
from tools.rig.base.state import StateRoot, home_of
from tools.rig.builds import interpreter, uv
from tools.rig.builds.candidates import NEED_BYTES, Candidate, judge
from tools.rig.builds.place import PlaceFacts
from tools.rig.host import look, pythons
from tools.rig.host.pythons import Python
from tools.rig.host.storage import Rates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AGAIN_S = 0.1
"""Seconds of measuring where the environment is already there."""

NAME = "1cat-rig"
"""Name of our folder wherever it lies."""

_VERSION = re.compile(r"\d+(\.\d+){1,2}")
# uv writes the first name, Python's own venv the second
_CFG_VERSION = re.compile(r"^version(?:_info)? *= *(\d+\.\d+\.\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Seams:
    """What the survey asks; tests put fakes here.

    Without `find_pythons` none is looked for, and uv need not be there.
    """

    disk: Any = look.disk
    checkout: Any = look.checkout
    text: Any = look.text
    find_pythons: Any = pythons.find
    probe_python: Any = pythons.probe
    run: Any = run.run
    shared: tuple[Path, ...] = (Path("/scratch"), Path("/data"))
    var_tmp: Path = Path("/var/tmp")


def facts(
    settings: Settings,
    checkout: Path,
    *,
    python: str = "3.12",
    env: Mapping[str, str] | None = None,
    measure_s: float = 0.5,
    need_headers: bool = False,
    seams: Seams | None = None,
) -> PlaceFacts:
    """Look at the checkout, at the places for its environment, and at Pythons.

    Parameters
    ----------
    settings
        ``local_root``, ``python`` and ``offline`` are used.
    checkout
        The folder that will be built.
    python
        The profile's Python.
    env
        Our environment when None.
    measure_s
        Seconds of measuring on each disk; the checkout's gets twice as much. A disk
        that several of them lie on is measured once.

    need_headers
        Whether the target is compiled with Python.h.

    Raises
    ------
    look.Hung
        When the checkout's disk or the user's home does not answer.
    StepFailed
        When the checkout is no folder, or the remembered place cannot be read.
    """
    env = os.environ if env is None else env
    ask = seams or Seams()
    here = ask.checkout(checked_path(checkout))
    if here.link.kind == "link" and here.link.exists:
        # what is there was measured with care when it was made
        measure_s = min(measure_s, AGAIN_S)
    memory = remembered_file(env)
    before, named_before = remembered_root(memory, ask.text)
    candidates: list[Candidate] = []
    known: dict[str, Rates] = {}
    looked: set[Path] = set()
    for root, why, chosen in _roots(
        settings, here, (before, named_before), memory.parent, ask
    ):
        if root in looked:
            continue
        looked.add(root)
        found = _candidate(root, why, chosen, here.place, measure_s, known, ask)
        if root == settings.local_root:
            origin = settings.origin.get("local_root", "")
            found = replace(found, setting=origin)
        candidates.append(found)
        if found.disk.rates is not None:
            known[found.disk.mount.device] = found.disk.rates
    named, wanted, by_user = _wanted(settings, python, env, ask)
    requires = requires_python(here.pyproject)
    first = candidates[0]
    # only then is it sure to be chosen, whatever space is asked for
    ready = first.venv == "ready" and not judge(first, os.getuid(), NEED_BYTES)
    cache = env.get("UV_CACHE_DIR")
    wish = interpreter.Wish(wanted, requires=requires, need_headers=need_headers)
    return PlaceFacts(
        checkout=here,
        checkout_disk=ask.disk(
            here.real, measure_s=2 * measure_s, skip=(), known=known
        ),
        candidates=tuple(candidates),
        uid=os.getuid(),
        pythons=()
        if ready or named or ask.find_pythons is None
        else _pythons(env, wish, ask),
        wanted=wanted,
        wanted_by_user=by_user,
        named=named,
        requires_python=requires,
        need_headers=need_headers,
        offline=bool(settings.offline),
        cache=ask.disk(Path(cache), measure_s=0) if cache else None,
        remembered_in=memory,
        remembered=before,
    )


def remembered_file(env: Mapping[str, str]) -> Path:
    """Return the file that holds the chosen root, for all checkouts of this user."""
    return state_home(env) / NAME / "root.json"


def state_home(env: Mapping[str, str]) -> Path:
    """Return XDG_STATE_HOME, or its default; a relative one is no one."""
    given = env.get("XDG_STATE_HOME", "")
    if given.startswith("/"):
        return Path(given)
    home = env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".local" / "state"


def remembered_root(file: Path, read: Any = look.text) -> tuple[Path | None, bool]:
    """Return the root chosen before, and whether the user named it.

    Raises
    ------
    StepFailed
        When the file is there and cannot be understood; it is left alone.
    """
    text, problem = read(file)
    if text is None and not problem:
        return None, False
    try:
        data = json.loads(text or "")
        return checked_path(str(data["root"])), bool(data.get("chosen"))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise StepFailed(
            f"cannot read {file}: {problem or exc!r}",
            usual="It only remembers which disk was chosen; without it the choice is "
            "made again.",
            hint=put_aside(file, ".broken"),
        ) from exc


def requires_python(pyproject: str) -> str:
    """Return ``requires-python`` of a pyproject.toml, empty when it says nothing."""
    try:
        project = tomllib.loads(pyproject).get("project", {})
    except tomllib.TOMLDecodeError:
        return ""
    return str(project.get("requires-python", "")) if isinstance(project, dict) else ""


def _roots(
    settings: Settings,
    here: look.Checkout,
    before: tuple[Path | None, bool],
    state_folder: Path,
    ask: Seams,
) -> list[tuple[Path, str, bool]]:
    """Return the places in the order in which they are tried."""
    out: list[tuple[Path, str, bool]] = []
    if settings.local_root is not None:
        out.append((settings.local_root, "ONECAT_LOCAL_ROOT", True))
    pointed = home_of(Path(here.link.real)) if here.link.kind == "link" else None
    if pointed and pointed.name == here.place and pointed.parent.name == "venvs":
        out.append((pointed.parent.parent, ".venv points there", False))
    if before[0] is not None:
        out.append((before[0], "chosen before", before[1]))
    out.append((state_folder, "state folder of your home", False))
    uid = os.getuid()
    out.append((ask.var_tmp / f"{NAME}-{uid}", "local scratch", False))
    user = _user(uid)
    for top in ask.shared:
        if (top / user).is_dir():
            out.append((top / user / NAME, str(top), False))
    beside = here.real.parent / f".{NAME}-{uid}"
    out.append((beside, "the checkout's own disk", False))
    return [(checked_path(root), why, chosen) for root, why, chosen in out]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _candidate(
    root: Path,
    why: str,
    chosen: bool,
    place: str,
    measure_s: float,
    known: Mapping[str, Rates],
    ask: Seams,
) -> Candidate:
    disk = ask.disk(root, measure_s=measure_s, known=known)
    strange = disk.exists and not disk.empty and not disk.made
    if chosen and strange and NAME not in root.name:
        # a folder full of somebody's files is not claimed, only one inside it
        root = root / NAME
        disk = ask.disk(root, measure_s=measure_s, known=known)
    venv, version = "absent", ""
    if disk.exists:
        venv, version = inspect(StateRoot(root).venvs / place, ask.run)
    return Candidate(root, why, disk, chosen, venv, version)


def inspect(environment: Path, ask: Any = run.run) -> tuple[str, str]:
    """Return ``absent``, ``ready`` or ``broken`` for an environment, and its Python.

    One that does not answer in time is not broken for that, nor one whose Python was
    killed or found no room to start: a broken one is set aside, and the machine may
    only be busy. Then its own file tells.
    """
    if not os.path.lexists(environment):
        return "absent", ""
    got = ask(
        [
            environment / "bin/python",
            "-I",
            "-c",
            "import sys; print(*sys.version_info)",
        ],
        timeout=pythons.PROBE_S,
        cwd="/",
    )
    words = got.out.split()
    whole = (environment / "pyvenv.cfg").is_file()
    if got.ok and whole and len(words) >= 3:
        return "ready", ".".join(words[:3])
    if whole and (got.timed_out or was_killed(got) or no_room(got)):
        text = (environment / "pyvenv.cfg").read_text("utf-8", "replace")
        told = _CFG_VERSION.search(text)
        if told is not None:
            return "ready", str(told[1])
    return "broken", ""


def _wanted(
    settings: Settings, python: str, env: Mapping[str, str], ask: Seams
) -> tuple[Python | None, str, bool]:
    """Return the interpreter that the user named, the version, and who asked for it."""
    given = settings.python
    if given is None:
        return None, python, False
    if _VERSION.fullmatch(given):
        return None, given, True
    path = shutil.which(os.path.expanduser(given), path=env.get("PATH", os.defpath))
    if path is None:
        return (
            Python(Path(given), "", "setting", problem="no such program"),
            python,
            True,
        )
    return ask.probe_python(Path(path), "setting"), python, True


def _pythons(
    env: Mapping[str, str], wish: interpreter.Wish, ask: Seams
) -> tuple[Python, ...]:
    def enough(found: Python) -> bool:
        # headers are asked for even where they are not needed: the search costs little
        best = pythons.choose([found], wish.version, wish.requires, need_headers=True)
        return best is not None and pythons.fits(best, wish.version)

    return tuple(ask.find_pythons(env, uv.program(env), enough=enough))
