# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the environment goes: a pure decision from facts, with a reason for each place.

An environment is tens of thousands of small files that Python looks at again and again.
On a disk with 60 ms a look that is the difference between seconds and hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.console import size
from tools.rig.base.errors import CannotError, put_aside, quoted
from tools.rig.base.state import StateRoot, home_of
from tools.rig.builds import interpreter
from tools.rig.builds.candidates import (
    GIB,
    NEED_BYTES,
    Candidate,
    Verdict,
    judge,
    shows,
    slow,
    speed,
)
from tools.rig.builds.interpreter import Choice
from tools.rig.host import storage
from tools.rig.host.look import Checkout, Disk
from tools.rig.host.pythons import Python

__all__ = ["GIB", "NEED_BYTES", "Environment", "PlaceFacts", "PlacePlan", "plan"]


COPY_IT = (
    "copy it to a folder of yours and pass that with --source, or mount it writable"
)
"""What to do about a checkout that one may not write into."""


@dataclass(frozen=True)
class PlaceFacts:
    """All that the decision rests on.

    ``reading`` tells that nothing will be made: then a root that is there will do.
    """

    checkout: Checkout
    checkout_disk: Disk
    candidates: tuple[Candidate, ...]
    uid: int
    pythons: tuple[Python, ...]
    wanted: str
    wanted_by_user: bool = False
    named: Python | None = None
    requires_python: str = ""
    need_headers: bool = False
    offline: bool = False
    cache: Disk | None = None
    remembered_in: Path = Path("/nonexistent/root.json")
    remembered: Path | None = None
    notes: tuple[str, ...] = ()
    reading: bool = False


@dataclass(frozen=True)
class PlacePlan:
    """What ``act`` will do; it can be printed and does nothing by itself.

    ``link_action`` is ``make``, ``keep``, ``leave``, or ``switch`` for a link of ours
    that leads elsewhere; ``link_note`` says why it is left, ``link_hint`` what to type.
    ``existing`` is the state of the environment.
    """

    facts: PlaceFacts
    root: StateRoot
    why: str
    chosen: bool
    verdicts: tuple[Verdict, ...]
    environment: Path
    deps: Path
    link: Path
    link_action: str
    existing: str
    python: Choice
    link_note: str = ""
    link_hint: str = ""
    notes: tuple[str, ...] = ()

    @property
    def bench(self) -> Path:
        """The environment that builds happen in; nothing is served from it."""
        return self.root.benches / self.environment.name

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        out = [f"not {v}" for v in self.verdicts if v.reason]
        out.append(f"root: {self.root.path} ({self.why})")
        state = {
            "ready": "is there",
            "broken": "is broken and made anew",
            "absent": f"is made with Python {self.python}",
        }[self.existing]
        out.append(f"environment: {self.environment} {state}")
        if self.link_action == "make":
            out.append(f"link: {self.link} -> {self.environment}")
        if self.link_action == "switch":
            was = self.facts.checkout.link.target
            out.append(f"link: {self.link} -> {self.environment} (it was {was})")
        out += [note for note in (self.link_note, *self.notes) if note]
        return out


@dataclass(frozen=True)
class Environment:
    """The environment as ``act`` leaves it.

    ``path`` is the link to the one in force, ``link`` the ``.venv`` that points there
    or None, ``bench`` the environment that builds happen in, ``python_version`` the
    bench's, ``deps`` the folder for FETCHCONTENT_BASE_DIR.
    """

    root: StateRoot
    path: Path
    python: Path
    python_version: str
    link: Path | None
    notes: tuple[str, ...]
    deps: Path
    bench: Path


def choose(facts: PlaceFacts, need_bytes: int = NEED_BYTES) -> tuple[Verdict, ...]:
    """Return a verdict for each candidate up to the first that will do, the last one.

    Who only reads asks for no space and no permission to write: where nothing will do
    for a build, and where the user's settings name the place, what is there is taken.

    Raises
    ------
    CannotError
        When none will do, with the reason for each, or when the one will not do that
        the user's settings name.
    """
    verdicts = []
    for candidate in facts.candidates:
        verdicts.append(Verdict(candidate, judge(candidate, facts.uid, need_bytes)))
        if not verdicts[-1].reason:
            return tuple(verdicts)
        if candidate.setting:
            if _can_be_read(facts, candidate):
                return (*verdicts[:-1], Verdict(candidate, ""))
            raise _refused(verdicts[-1], need_bytes)
    for verdict in verdicts:
        if _can_be_read(facts, verdict.candidate):
            others = [v for v in verdicts if v is not verdict]
            return (*others, Verdict(verdict.candidate, ""))
    raise CannotError(
        "no disk of this machine will do for the environment",
        details=[str(v) for v in verdicts],
        usual=f"It needs {size(need_bytes)} on a local disk that you may write to.",
        hint=_elsewhere(verdicts),
    )


def _elsewhere(verdicts: list[Verdict]) -> str:
    """Return what to type where no place will do: the first one's lack, if one sees."""
    best = verdicts[0] if verdicts else None
    seen = shows(best.candidate, best.reason) if best else ""
    other = "export ONECAT_LOCAL_ROOT=<a folder on a local disk>"
    return f"{seen} shows the first; make it fit, or {other}" if seen else other


def _can_be_read(facts: PlaceFacts, candidate: Candidate) -> bool:
    """Say whether something of ours is there for a command that only reads."""
    ours = candidate.disk.made or candidate.venv != "absent"
    return facts.reading and candidate.disk.exists and ours and not candidate.disk.hung


def _refused(verdict: Verdict, need_bytes: int) -> CannotError:
    """Return the error for the place that the user's settings name."""
    named = verdict.candidate.setting
    by_variable = named.startswith("environment")
    undo = "unset ONECAT_LOCAL_ROOT" if by_variable else "take local_root out"
    seen = shows(verdict.candidate, verdict.reason)
    return CannotError(
        f"{verdict.candidate.root} will not do for the environment: {verdict.reason}",
        usual=f"It is named by the {named}, and no other place is taken instead."
        if by_variable
        else f"It is local_root from {named}, and no other place is taken instead.",
        hint=f"{seen} shows it; make it fit, or {undo}"
        if seen
        else f"{undo}, or name a folder on a local disk with "
        f"{-(-need_bytes // GIB)} GiB free",
    )


def plan(facts: PlaceFacts, need_bytes: int = NEED_BYTES) -> PlacePlan:
    """Choose the place, and say what will be made there.

    Parameters
    ----------
    facts
        See :mod:`tools.rig.builds.survey`.
    need_bytes
        Bytes that the environment and its caches take.

    Raises
    ------
    CannotError
        When no place or no Python will do, with the reason for each.
    """
    verdicts = choose(facts, need_bytes)
    best = verdicts[-1].candidate
    root = StateRoot(best.root)
    environment = root.venvs / facts.checkout.place
    action, note, hint = _link(facts, environment)
    return PlacePlan(
        facts=facts,
        root=root,
        why=best.why,
        chosen=best.chosen,
        verdicts=verdicts,
        environment=environment,
        deps=root.deps / facts.checkout.place,
        link=facts.checkout.real / ".venv",
        link_action=action,
        existing=best.venv,
        python=_python(facts, best),
        link_note=note,
        link_hint=hint,
        notes=(*facts.notes, *_notes(facts, best), *_unfit(facts, best, need_bytes)),
    )


def _link(facts: PlaceFacts, environment: Path) -> tuple[str, str, str]:
    """Return what happens to ``.venv``, why it is left, and what to type then."""
    checkout = facts.checkout
    link, name = checkout.link, checkout.real / ".venv"
    use = f"the environment is {environment}"
    if link.kind == "absent":
        if checkout.writable:
            return "make", "", ""
        why = f"{checkout.real} cannot be written to, so no .venv is made: {use}"
        return "leave", why, f"source {quoted(environment / 'bin/activate')}"
    if link.kind == "link" and home_of(Path(link.real)) == environment:
        return "keep", "", ""
    if checkout.writable and _our_link(facts):
        return "switch", "", ""
    hint = f"{put_aside(name)} && invoke venv-local" if checkout.writable else COPY_IT
    if link.kind != "link":
        return "leave", f"{name} is a {link.kind} of yours and is left: {use}", hint
    gone = "" if link.exists else ", which is not there"
    why = f"{name} points to {link.target}{gone}; it is left as it is: {use}"
    return "leave", why, hint


def _our_link(facts: PlaceFacts) -> bool:
    """Say whether ``.venv`` is a link that we made, for another place or checkout.

    It came along when the checkout was copied or moved, or is of another state root. A
    root that is gone is known by the name of this checkout's own place; on a network
    disk that may be another host's, where it is not gone.
    """
    link, checkout = facts.checkout.link, facts.checkout
    if link.kind != "link" or link.made:
        return link.kind == "link"
    pointed = home_of(Path(link.real))
    own = pointed.parent.name == "venvs" and pointed.name == checkout.place
    network = storage.kind(facts.checkout_disk.mount.fs) == "network"
    return own and not link.exists and not network


def _python(facts: PlaceFacts, best: Candidate) -> Choice:
    wish = interpreter.Wish(
        version=facts.wanted,
        by_user=facts.wanted_by_user,
        named=facts.named,
        requires=facts.requires_python,
        need_headers=facts.need_headers,
        offline=facts.offline,
    )
    environment = StateRoot(best.root).venvs / facts.checkout.place
    if best.venv == "ready":
        return interpreter.keep(wish, best.version, environment)
    return interpreter.decide(wish, facts.pythons)


def _unfit(facts: PlaceFacts, best: Candidate, need_bytes: int) -> list[str]:
    """Return why a build would not take the place that is looked at."""
    reason = judge(best, facts.uid, need_bytes) if facts.reading else ""
    return [f"a build will not take {best.root}: {reason}"] if reason else []


def _notes(facts: PlaceFacts, best: Candidate) -> list[str]:
    notes = []
    own, its = facts.checkout_disk, best.disk.mount
    if (own.mount.device, own.mount.fs) == (its.device, its.fs):
        if not slow(own) and own.rates:
            notes.append(f"the checkout's own disk is fast and serves: {speed(own)}")
    elif slow(own):
        notes.append(f"the checkout's own disk is slow: {speed(own)}")
    elif own.rates and storage.kind(own.mount.fs) not in ("network", "memory"):
        notes.append(
            f"the checkout's own disk is fast too ({speed(own)}): ONECAT_LOCAL_ROOT "
            "may name a folder there"
        )
    if facts.checkout.owner != facts.uid:
        notes.append(
            f"the checkout belongs to user {facts.checkout.owner}, you are {facts.uid}"
        )
    cache = facts.cache
    if cache is not None and (cache.hung or cache.mount.device != its.device):
        notes.append(
            f"UV_CACHE_DIR={cache.path} is on another disk ({cache.mount}): files are "
            "copied into the environment, not linked"
        )
    return notes
