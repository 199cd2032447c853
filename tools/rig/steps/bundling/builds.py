# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What builds and servers left behind: records, logs, crashes, and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import regex as re

from tools.rig.base.report import crash_folder
from tools.rig.builds import record
from tools.rig.diagnose import examine, words
from tools.rig.steps.bundling.site import Part, Site, excerpt, newest

BUILDS = 3
SERVERS = 3
CRASHES = 2
"""How many of each are taken, the newest ones."""

SERVER_FOLDERS = ("servers", "serve", "server")
"""Folders below the state root in which servers may have left logs."""

SUMMARY_BYTES = 48 << 10
"""Bytes of the end of a log that the summary looks at."""

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_BAD = ("failed", "died", "interrupted")


def builds(site: Site) -> list[Part]:
    """Return the newest records with their logs; the newest failed one is among them.

    It also leaves ``build`` and ``build_tail`` for the summary.
    """
    if site.root is None:
        return []
    found = record.listing(site.root)
    chosen = found[:BUILDS]
    failed = _failed(found)
    if failed is not None and failed not in chosen:
        chosen.append(failed)
    site.facts["build"] = failed or (found[0] if found else None)
    parts: list[Part] = []
    for number, data in enumerate(chosen, 1):
        name = str(data.get("id", ""))
        # a foreign name may hold anything
        name = name if _ID.fullmatch(name) else str(number)
        parts.append(Part(f"builds/{name}.json", data))
        log = log_of(site, data)
        if log is not None:
            parts += _log(site, f"builds/{name}.log", log)
            if data is site.facts["build"]:
                site.facts["build_tail"] = excerpt(log, 0, SUMMARY_BYTES)[-1]
    return parts


def servers(site: Site) -> list[Part]:
    """Return the logs of servers, and other logs that no build wrote."""
    if site.root is None:
        return []
    parts: list[Part] = []
    for number, file in enumerate(server_logs(site), 1):
        parts += _log(site, f"servers/{number}.log", file)
    others = newest(site.root.logs, "*", SERVERS + 64)
    others = [f for f in others if not _ID.fullmatch(f.stem) and f.name[0] != "."]
    for number, file in enumerate(others[:SERVERS], 1):
        parts += _log(site, f"logs/{number}.log", file)
    return parts


def server_logs(site: Site) -> list[Path]:
    """Return the newest logs of servers."""
    if site.root is None:
        return []
    files = [
        file
        for folder in SERVER_FOLDERS
        for file in newest(site.root.path / folder, "*.log*", SERVERS)
    ]
    return sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)[:SERVERS]


def crashes(site: Site) -> list[Part]:
    """Return the reports of errors that nobody expected."""
    files = newest(crash_folder(site.env), "*.txt", CRASHES)
    parts: list[Part] = []
    for number, file in enumerate(files, 1):
        parts += _log(site, f"crashes/{number}.txt", file)
    return parts


def diagnosis(site: Site) -> list[Part]:
    """Return what the newest failed build's log means, else the newest server's."""
    if site.root is None:
        return []
    failed = _failed(record.listing(site.root))
    log = log_of(site, failed) if failed is not None else None
    what = f"build {failed.get('id', '')}" if failed is not None else ""
    if log is None:
        what = "the newest server log"
        log = next(iter(server_logs(site)), None)
    if log is None:
        site.note("diagnosis: no failed build and no server log to look at")
        return []
    seen = examine.logs([str(log)])[0]
    data = {"of": what, **words.as_json(seen.judgement, "en", {})}
    site.facts["diagnosis"] = data
    text = words.as_text(seen.judgement, "en", {}, seen.lines)
    site.facts["diagnosis_text"] = "\n".join(text)
    site.facts["tail"] = excerpt(log, 0, SUMMARY_BYTES)[-1]
    return [
        Part("diagnosis.json", data),
        Part("diagnosis.txt", "\n".join([f"of {what}", "", *text, ""])),
    ]


def log_of(site: Site, data: dict[str, Any]) -> Path | None:
    """Return the log that a record names, where it lies among the suite's own logs."""
    named = data.get("log")
    if site.root is None or not isinstance(named, str) or not named:
        return None
    file = Path(named)
    # a record that was edited must not name any file of the machine
    own = site.root.logs / file.name
    if file.name in ("", "..") or own.is_symlink() or not own.is_file():
        return None
    return own


def _failed(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((data for data in found if data.get("result") in _BAD), None)


def _log(site: Site, name: str, file: Path) -> list[Part]:
    try:
        pieces = excerpt(file)
    except OSError as exc:
        site.note(f"{name}: cannot be read ({exc.strerror})")
        return []
    return [Part(name, (f"# {file.name}\n", *pieces))]
