# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build says at its end: the summary, or the first decisive error."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools.rig.base import room
from tools.rig.base.console import Console, duration, size
from tools.rig.base.errors import StepFailed
from tools.rig.builds.candidates import slow, speed
from tools.rig.builds.meter import Peaks
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.place import Environment, PlacePlan
from tools.rig.builds.verdicts import VerifyReport, names_of
from tools.rig.diagnose import examine, words
from tools.rig.diagnose.first_error import first_error
from tools.rig.diagnose.reader import blocks
from tools.rig.host import storage
from tools.rig.steps.toolkit import Pair

_CHUNK = 1 << 20
_ROOM = 64 << 20
"""Bytes free under which a disk counts as full."""
_STALLED_S = 5.0
"""Seconds without a compile that are worth a word."""
_MANY = 20_000
"""Inodes that a build may have given back since it was told that there are none."""


def place_notes(placing: PlacePlan, made: Environment) -> list[str]:
    """Return what was worked round for the environment, and not what was only seen."""
    notes = [note for note in made.notes if note not in placing.notes]
    own = placing.facts.checkout_disk
    if (
        slow(own)
        and own.mount.device != placing.verdicts[-1].candidate.disk.mount.device
    ):
        why = f"the checkout's own disk is slow ({speed(own)})"
        notes.append(f"environment in {placing.root.path}: {why}")
    return notes


def chain_notes(chosen: PairPlan, pair: Pair, toolkits: Path) -> list[str]:
    """Return what was worked round for the toolchain, in earlier runs too."""
    notes = list(pair.notes)
    kit, compiler = chosen.toolkit, chosen.compiler
    if kit is not None and kit.origin == "provisioned":
        notes.append(f"CUDA {kit.version} from {kit.root}: none of this machine fits")
    if compiler is not None and compiler.path.is_relative_to(toolkits):
        notes.append(f"{compiler.describe()}: none of this machine fits")
    return notes


def full_disk(title: str, log: Path, since: int, root: Path) -> StepFailed | None:
    """Return the error for a build that a full disk has stopped, or None.

    Compilers and linkers say it in many ways, or not at all, and what they were writing
    is gone when one looks; so the free space counts as well.

    Parameters
    ----------
    title, log, since
        As for :func:`failure`.
    root
        The state root, on whose disk everything is built.
    """
    free, _ = storage.free(root)
    said = ""
    with log.open("rb") as whole:
        whole.seek(since)
        for line in whole:
            if b"No space left on device" in line:
                said = line.decode("utf-8", "replace").strip()
                break
    few = _MANY if said and free > _ROOM else room.FEW
    inodes = room.lacks_inodes(root, few)
    if not said and free > _ROOM and not inodes:
        return None
    left = room.NO_INODES if inodes else f"the disk of {root} has {size(free)} free now"
    return StepFailed(
        f"building the {title} failed: No space left on device"
        + (f"; {room.NO_INODES}" if inodes else ""),
        details=[said] if said else (),
        usual=f"{left[0].upper()}{left[1:]}; what a build was writing is gone by then. "
        "Where TMPDIR lies on another disk, that one may be full.",
        hint=f"{room.look(root, few)}, make room, then run the command again",
    )


def failure(
    title: str,
    code: int,
    log: Path,
    since: int,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> StepFailed:
    """Return the error for a build that failed.

    Parameters
    ----------
    title
        What was built.
    code
        Its exit status.
    log
        The whole log.
    since
        Bytes of the log that earlier steps wrote: their errors were none.
    facts
        What of this build stands in the advice (see :mod:`tools.rig.diagnose.words`).
    """
    what = f"building the {title} failed (status {code})"
    with log.open("rb") as whole:
        before, left = 0, since
        while left and (chunk := whole.read(min(left, _CHUNK))):
            before += chunk.count(b"\n")
            left -= len(chunk)
        root = examine.stream(blocks(whole)).judgement.root
        whole.seek(since)
        cause = first_error(line.decode("utf-8", "replace") for line in whole)
    if root is not None:
        said = words.filled(root, "en", facts)
        return StepFailed(
            f"{what}: {said.title}",
            details=[root.line.text, *said.fix],
            usual=f"{said.cause} See line {before + root.line.number} of {log}.",
            hint="invoke diagnose",
        )
    where = f"line {before + cause.line} of {log}" if cause else str(log)
    return StepFailed(
        what,
        details=cause.lines() if cause else (),
        usual=f"The first decisive error stands in {where}."
        if cause
        else f"No line says why. Whole log: {where}",
        hint=f"less {shlex.quote(str(log))}",
    )


def held_up(record: Mapping[str, Any]) -> str:
    """Return how long a build could not compile since others did, or nothing."""
    told = record.get("admission") or {}
    if (told.get("stalled_s") or 0) < _STALLED_S:
        return ""
    others = ", ".join(told.get("held_by") or ())
    return f"{duration(told['stalled_s'])}, nothing of it ran: " + (
        f"build {others} compiled" if others else "there was no room for a compile"
    )


def summary(
    console: Console,
    record: dict[str, Any],
    file: Path,
    report: VerifyReport,
    peaks: Peaks,
    seconds: float,
    work_rounds: Sequence[str],
) -> None:
    """Say what was built, where, how long it took, and what was worked round."""
    say = console.say
    codes = [lib.sms for lib in report.libraries if lib.verdict == "ok"]
    cards = names_of(set(codes[0]).intersection(*codes[1:])) if codes else "no"
    say("")
    console.mark("ok", f"built {record['version']} ({record['commit']})")
    say(f"  environment  {record['environment']}")
    say(f"  proved       {len(codes)} CUDA libraries hold {cards} code")
    say(f"  took         {duration(seconds)}")
    if waited := held_up(record):
        say(f"  waited       {waited}")
    if peaks.total:
        one = f"{peaks.process_name} {size(peaks.process)}"
        say(f"  peak memory  {size(peaks.total)} in all; largest: {one}")
    for note in work_rounds:
        say(f"  work-round   {note}")
    say(f"  record       {file}")
