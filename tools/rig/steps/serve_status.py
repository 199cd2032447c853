# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-status``: what all servers do, and whether they really serve."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from typing import Any

from tools.rig.base import reader
from tools.rig.base.console import Console, duration, print_json, size, table
from tools.rig.base.errors import ExitCode
from tools.rig.base.state import StateRoot
from tools.rig.serve import record as records
from tools.rig.serve.cards import CardUse
from tools.rig.serve.foreign import escaped
from tools.rig.serve.look import PROBE_S, ServerStatus, look_at_all
from tools.rig.serve.states import State
from tools.rig.steps.serve_stop import pick

_MARKS = {
    State.STARTING: "unknown",
    State.READY: "ok",
    State.DRAINING: "warn",
    State.DEGRADED: "warn",
    State.HUNG: "fail",
    State.DEAD: "fail",
    State.UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class Report:
    """All servers, as one look found them."""

    servers: list[ServerStatus]

    @property
    def exit_code(self) -> ExitCode:
        """1 when one of them is degraded, hung, dead or unknown."""
        return ExitCode.FAILED if any(s.bad for s in self.servers) else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return them as plain data."""
        return {"servers": [server.to_json() for server in self.servers]}


def serve_status(
    console: Console,
    root: StateRoot,
    name: str = "",
    *,
    deep: bool = True,
    probe_s: float = PROBE_S,
    watch_s: float = 0.0,
    as_json: bool = False,
) -> Report:
    """Look at all servers, or at one, and show what was found.

    Parameters
    ----------
    deep
        Have each make a token; see :func:`tools.rig.serve.look.look`.
    probe_s
        Seconds that the token may take.
    watch_s
        Look again after so many seconds, until Ctrl-C, or until nobody reads any more
        what is found; 0: once.
    as_json
        While watching, print each look as one line of JSON on stdout.

    Raises
    ------
    UsageError
        When no server has that name.
    """
    for turn in itertools.count():
        bad = [one for one in records.broken(root) if name in ("", one.name)]
        found = records.listing(root)
        if name:
            found = [] if bad else [pick(root, name)]
        seen = look_at_all(root, found, deep=deep, probe_s=probe_s)
        seen += [_unreadable(one) for one in bad]
        report = Report(sorted(seen, key=lambda one: one.name))
        if turn and console.tty:
            console.say(f"-- {time.strftime('%H:%M:%S')}")
        _show(console, report)
        if not watch_s or not _passed_on(report, console, as_json, watch_s):
            return report
    raise AssertionError("counting never ends")


def _passed_on(report: Report, console: Console, as_json: bool, wait_s: float) -> bool:
    """Print a look for programs, wait for the next, and say whether somebody reads."""
    if not as_json:
        return reader.stays(console.stream, wait_s)
    try:
        print_json(report.to_json(), indent=None)
    except OSError:
        return False
    return reader.stays(sys.stdout, wait_s)


def _unreadable(bad: records.Broken) -> ServerStatus:
    """Return the row of a server whose record is broken: all of it is unknown."""
    return ServerStatus(
        name=bad.name,
        state=State.UNKNOWN,
        reason=bad.problem,
        model="",
        served_name="",
        version="",
        environment="",
        pid=0,
        address="",
        uptime_s=0.0,
        processes=[],
        cards=[],
        log=str(bad.file.with_suffix(".log")),
        notes=[f"hint: {bad.hint}"],
    )


def _show(console: Console, report: Report) -> None:
    if not report.servers:
        console.say("no server is recorded here")
    for server in report.servers:
        reason = f": {escaped(server.reason)}" if server.reason else ""
        console.mark(
            _MARKS[server.state], f"{server.name} is {server.state.value}{reason}"
        )
        for line in _lines(server):
            # processes choose their names, and files may say anything
            console.say(f"  {escaped(line)}")


def _lines(server: ServerStatus) -> list[str]:
    if server.state is State.UNKNOWN and not server.processes:
        return server.notes
    lines = [f"model: {server.model} as {server.served_name}"]
    if server.state is State.DEAD:
        lines.append(f"log: {server.log}")
        return [*lines, *_tree(server)]
    version = f", vLLM {server.version}" if server.version else ""
    lines.append(
        f"address: {server.address}, up for {duration(server.uptime_s)}{version}"
    )
    if server.running is not None:
        numbers = [f"{server.running} running", f"{server.waiting or 0} waiting"]
        if server.kv is not None:
            numbers.append(f"KV cache {server.kv:.0%}")
        if server.tokens_per_s is not None:
            numbers.append(f"{server.tokens_per_s:.1f} tokens/s")
        if server.last_token_s is not None:
            numbers.append(f"last token {duration(server.last_token_s)} ago")
        lines.append(f"requests: {', '.join(numbers)}")
    lines += [_card(card) for card in server.cards]
    return [*lines, *_tree(server)]


def _card(card: CardUse) -> str:
    own = "unknown" if card.own is None else size(card.own)
    used = "unknown" if card.used is None else size(card.used)
    total = "" if card.total is None else f" of {size(card.total)}"
    return f"card {card.card}: {own} by this server, {used}{total} in all"


def _tree(server: ServerStatus) -> list[str]:
    rows = []
    depth: dict[int, int] = {}
    for member in server.processes:
        depth[member["pid"]] = depth.get(member["parent"], -1) + 1
        indent = "  " * depth[member["pid"]]
        rows.append(
            (
                str(member["pid"]),
                member["role"],
                member["state"],
                indent + member["name"],
            )
        )
    return table(("PID", "ROLE", "STATE", "PROCESS"), rows) if rows else []
