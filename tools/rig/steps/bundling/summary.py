# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The summary of a bundle: Markdown that can be pasted into an issue as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import regex as re

from tools.rig.host.gpu import Gpus

MOST = 64_000
"""Characters of a summary; GitHub takes 65,536 in an issue."""

_TAIL = 16_000
_PART = 8_000
_LINE = 1_000
_FENCE = re.compile(r"`{3,}")


def summary(
    facts: Mapping[str, Any],
    problems: Sequence[str],
    mask: Callable[[str], str],
    replaced: Callable[[], Mapping[str, int]],
) -> str:
    """Return the Markdown.

    Parameters
    ----------
    facts
        What the collectors left for it.
    problems
        What could not be found out, masked already.
    mask
        Takes secrets and names out of a text.
    replaced
        Returns how often something of each kind was replaced.
    """
    tail = facts.get("tail") or facts.get("build_tail", "")
    body = [
        *_tried(facts.get("build"), mask),
        *_verdict(facts, mask),
        *_table("Machine", _machine(facts), mask),
        *_table("Versions", _versions(facts), mask),
        *_details("Doctor: what is not in order", _doctor(facts), mask, _PART),
        *_details("Last lines of the log", tail, mask, _TAIL),
        *_details("The whole diagnosis", facts.get("diagnosis_text", ""), mask, _PART),
        *_details("Plan", facts.get("plan", ""), mask, _PART),
        *_details("Not found out", "\n".join(problems), mask, _PART),
    ]
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(replaced().items()))
    body.append(f"Replaced in the bundle: {kinds or 'nothing'}.")
    text = "\n".join(body) + "\n"
    return text if len(text) <= MOST else text[: MOST - 40] + "\n```\n\n(cut)\n"


def _tried(build: Mapping[str, Any] | None, mask: Callable[[str], str]) -> list[str]:
    lines = ["## What was tried", ""]
    if not build:
        return [*lines, "No build is recorded on this machine.", ""]
    steps = build.get("steps")
    last = steps[-1] if isinstance(steps, list) and steps else {}
    rows = {
        "command": build.get("command", ""),
        "profile": build.get("profile", ""),
        "began": build.get("started", ""),
        "result": build.get("result", ""),
        "exit code": build.get("exit_code", ""),
        "last step": last.get("title", "") if isinstance(last, dict) else "",
        "error": build.get("error", build.get("problem", "")),
    }
    return [*lines, *_rows(rows, mask), ""]


def _verdict(facts: Mapping[str, Any], mask: Callable[[str], str]) -> list[str]:
    lines = ["## Verdict", ""]
    found = facts.get("diagnosis")
    if not found:
        return [*lines, "There was no log to look at.", ""]
    findings = found.get("findings", [])
    cause = next((f for f in findings if f.get("role") == "cause"), None)
    rows = {"of": found.get("of", ""), "verdict": found.get("verdict", "")}
    if cause:
        rows["root cause"] = f"{cause['id']}: {cause['title']}"
        rows["evidence"] = f"line {cause['line']}: {cause['evidence']}"
        rows["why"] = cause["cause"]
    return [*lines, *_rows(rows, mask), ""]


def _machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    data = facts.get("machine", {})
    rows = {name: data.get(name, "") for name in ("system", "kernel", "glibc")}
    rows["container"] = data.get("container") or ("WSL" if data.get("wsl") else "no")
    rows["cores"] = data.get("cores", "")
    total, free = data.get("memory_gib", "?"), data.get("available_gib", "?")
    rows["memory"] = f"{total} GiB, {free} GiB available"
    gpus = facts.get("gpus")
    if isinstance(gpus, Gpus):
        rows["cards"] = (
            ", ".join(
                f"{card.name} (sm_{card.sm}, {(card.total or 0) / 2**30:.0f} GiB)"
                for card in gpus.cards
            )
            or gpus.reason
            or gpus.state
        )
        rows["driver"] = gpus.driver or "unknown"
        rows["driver's CUDA"] = gpus.cuda or "unknown"
    rows["doctor"] = facts.get("doctor", {}).get("verdict", {}).get("line", "")
    return rows


def _versions(facts: Mapping[str, Any]) -> dict[str, Any]:
    data = facts.get("machine", {})
    rows = {
        "checkout": facts.get("git describe", ""),
        "commit": facts.get("git HEAD", ""),
        "profile": data.get("profile", ""),
        "python of the tools": data.get("python_of_the_tools", ""),
    }
    return {**rows, **facts.get("versions", {})}


def _doctor(facts: Mapping[str, Any]) -> str:
    lines = []
    for result in facts.get("doctor", {}).get("results", ()):
        if result.get("status") in ("fail", "warn", "unknown"):
            lines.append(f"{result['status']}: {result['title']}: {result['detail']}")
    return "\n".join(lines)


def _table(
    title: str, rows: Mapping[str, Any], mask: Callable[[str], str]
) -> list[str]:
    return [f"## {title}", "", *_rows(rows, mask), ""]


def _rows(rows: Mapping[str, Any], mask: Callable[[str], str]) -> Iterable[str]:
    yield "| | |"
    yield "| --- | --- |"
    for name, value in rows.items():
        if value not in ("", None):
            yield f"| {name} | {_code(mask(str(value)))} |"


def _code(text: str) -> str:
    """Return a text for a cell, where no sign of it means anything to Markdown."""
    line = " ".join(text.split())[:_LINE].replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _details(title: str, text: str, mask: Callable[[str], str], most: int) -> list[str]:
    """Return a text that is folded; of one that is too long, the end."""
    masked = mask(text).strip("\n")
    if not masked:
        return []
    lines = [line[:_LINE] for line in masked.splitlines()]
    size, first = 0, len(lines)
    while first > 0 and size + len(lines[first - 1]) + 1 <= most:
        first -= 1
        size += len(lines[first]) + 1
    shown = "\n".join(lines[first:])
    longest = max((len(run) for run in _FENCE.findall(shown)), default=2)
    fence = "`" * (longest + 1)
    left = [f"({first} lines above are left out)", ""] if first else []
    head = f"<details><summary>{title}</summary>"
    return [head, "", *left, f"{fence}text", shown, fence, "", "</details>", ""]
