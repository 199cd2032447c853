# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""``report``: the page about one build, and the same as data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, RigError, StepFailed, UsageError
from tools.rig.base.paths import typed_path
from tools.rig.base.state import StateRoot, write_text
from tools.rig.builds.report import plain, sources
from tools.rig.builds.report import sheet as sheets
from tools.rig.builds.report.artist import Artist, Drawings
from tools.rig.builds.report.facts import compiled, gather
from tools.rig.builds.report.page import page


@dataclass(frozen=True)
class ReportResult:
    """A report that was written.

    ``plots`` is ``matplotlib``, ``plain`` or ``none``; ``note`` says why not the first.
    """

    file: Path
    facts: dict[str, Any]
    plots: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the facts, and where the page is."""
        told = {"file": str(self.file), "plots": self.plots, "note": self.note}
        return told | self.facts


def report(
    console: Console,
    record: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    root: StateRoot,
    output: Path | str | None,
    *,
    artist: Artist | None = None,
) -> ReportResult:
    """Write the report of a build.

    Parameters
    ----------
    console
        Where people are told where it is.
    record
        The build's record.
    earlier
        The record that it is compared with; see :func:`chosen`.
    root
        Where logs and tools lie.
    output
        The file or the folder to write to; one below the state root when None or
        empty. A text that ends in a slash names a folder, which is made.
    artist
        Who draws; tests have their own.

    Raises
    ------
    StepFailed
        When the file cannot be written.
    UsageError
        When its name holds a line break.
    """
    name = str(record.get("id") or "build")
    file = typed_path(output) if output else _reports(root, name)
    # a Path has lost the slash that tells
    if os.path.isdir(file) or str(output or "").endswith(os.sep):
        file /= f"{name}.html"
    facts = gather(
        record,
        earlier,
        events=_lines(root, record, "events"),
        memory=_lines(root, record, "memory"),
        earlier_events=_lines(root, earlier or {}, "events"),
    )
    sheet = sheets.sheet(facts)
    drawn, plots, note = _drawn(sheet, root, console, artist)
    write_text(file, page(facts, drawn, note))
    if note:
        console.mark("warn", note)
    console.mark("ok", f"report of {name}: {file}")
    return ReportResult(file, facts, plots, note)


def _reports(root: StateRoot, name: str) -> Path:
    """Return the state root's folder for reports.

    Raises
    ------
    StepFailed
        When we may not write there, as to another user's.
    """
    folder = root.path / "reports"
    try:
        root.make(folder)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
        why = f"cannot write to {folder}"
    except StepFailed as exc:
        why = exc.what
    raise StepFailed(
        why,
        usual="The report may lie anywhere: a dot is the folder that you are in.",
        hint=f"invoke report --build {shlex.quote(name)} --output .",
    )


def chosen(
    records: Sequence[Mapping[str, Any]], build: str = ""
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return the record that is meant, and an earlier one to compare it with.

    That is the newest finished one of the same checkout and profile which compiled
    something itself: what came from a cache, or was there already, took no time.

    Parameters
    ----------
    records
        All records, newest first.
    build
        The id, or its beginning; the newest build with something compiled when empty.

    Raises
    ------
    UsageError
        When no record, or more than one, is meant.
    """
    readable = [r for r in records if r.get("result") != "unreadable"]
    if build:
        meant = [r for r in records if str(r.get("id", "")).startswith(build)]
        exact = [r for r in meant if r.get("id") == build]
        found = exact or meant
    else:
        found = [r for r in readable if compiled(r)][:1] or readable[:1]
    if len(found) != 1 or found[0].get("result") == "unreadable":
        raise _not_chosen(records, found, build)
    record = found[0]
    older = readable[readable.index(record) + 1 :]
    same = [r for r in older if r.get("result") == "done" and _alike(r, record)]
    return record, same[0] if same else None


def _not_chosen(
    records: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    build: str,
) -> UsageError:
    """Return the error for a name that is no build's, or several builds'."""
    if not records:
        return UsageError("there are no builds yet", hint="invoke build-sm70")
    what = f"there is no build {build}" if build else "no record can be read"
    if found:
        what = f"the record of {build} cannot be read"
    asked = found if build else records
    damaged = [str(r["problem"]) for r in asked if r.get("problem")]
    names = [str(r.get("id")) for r in found]
    if len(names) > 1:
        what = f"{build} names {len(names)} builds"
    details = names if len(names) > 1 else damaged
    return UsageError(what, details=details, hint="invoke builds")


def root_of(record: Mapping[str, Any]) -> StateRoot:
    """Return the state root that a build kept its log in.

    Raises
    ------
    CannotError
        When its record does not tell.
    """
    if not record.get("log"):
        raise CannotError(
            f"the record of {record.get('id')} names no log", hint="invoke builds"
        )
    return StateRoot(Path(str(record["log"])).parent.parent)


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether `one` compiled, and is of the checkout and profile of `other`."""
    same = all(one.get(k) == other.get(k) for k in ("checkout", "profile"))
    return same and compiled(one, cached=False)


def _lines(root: StateRoot, record: Mapping[str, Any], kind: str) -> list[sources.Row]:
    name = record.get("id")
    # only a name of ours: it becomes a path
    if not name or os.sep in str(name):
        return []
    return sources.rows(root.logs / f"{name}.{kind}.jsonl")


def _drawn(
    sheet: sources.Row, root: StateRoot, console: Console, artist: Artist | None
) -> tuple[Drawings, str, str]:
    """Return the drawings, who made them, and why not matplotlib."""
    if sheet["timeline"] is None and sheet["memory"] is None:
        return {}, "none", ""
    artist = artist if artist is not None else Artist(dict(os.environ))
    try:
        return artist.draw(sheet, root, console), "matplotlib", ""
    except RigError as exc:
        note = f"The plots are simpler ones, made without matplotlib: {exc.what}."
        for line in exc.details[-3:]:
            console.say(f"  {line}")
        return plain.drawings(sheet), "plain", note
