# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Measure what ``serve-tp2`` adds to a server's own time, and when memory is back.

``python -m benchmarks.rig.serve_times --python ENV/bin/python --model FOLDER`` starts a
real server twice with the suite's own steps: once it is killed (SIGKILL to the API
server), once it is stopped. With ``--cards 0`` the memory of these cards is watched
through NVML. Words after ``--`` go to vLLM. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu
from tools.rig.serve import cards, members, probe
from tools.rig.serve import record as records
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord
from tools.rig.steps.serve import serve
from tools.rig.steps.serve_status import serve_status
from tools.rig.steps.serve_stop import serve_stop

MIB = 1 << 20


def main() -> int:
    """Measure, and print what was found."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--python", type=Path, required=True)
    ask.add_argument("--model", type=Path, required=True)
    ask.add_argument("--tensor", type=int, default=1)
    ask.add_argument("--cards", default="")
    ask.add_argument("--env", action="append", default=[], help="NAME=VALUE")
    ask.add_argument("words", nargs="*")
    given = ask.parse_args()
    numbers = tuple(int(n) for n in given.cards.split(",") if n)
    with tempfile.TemporaryDirectory() as folder:
        root = StateRoot(Path(folder) / "root")
        plan = _plan(root, given, numbers)
        console = Console()
        before = _used(numbers)
        first = _start(console, plan, root)
        record = _record(root)
        first["cards"] = [dataclasses.asdict(c) for c in _use(record)]
        start = time.monotonic()
        quick = serve_status(console, root, deep=False).to_json()
        first["status_s"] = time.monotonic() - start
        first["state"] = quick["servers"][0]["state"]
        killed = _kill(record, before)
        serve_stop(console, root)
        second = _start(console, plan, root)
        record = _record(root)
        second["cards"] = [dataclasses.asdict(c) for c in _use(record)]
        stopped = serve_stop(console, root).to_json()
        after = _used(numbers)
    found = {
        "before_mib": before,
        "first": first,
        "killed": killed,
        "second": second,
        "stopped": stopped,
        "after_mib": after,
    }
    json.dump(found, sys.stdout, indent=2, default=str)
    print()
    return 0


def _plan(
    root: StateRoot, given: argparse.Namespace, numbers: tuple[int, ...]
) -> ServePlan:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    argv = [os.fspath(given.python), "-P", "-m", "vllm.entrypoints.cli.main", "serve"]
    argv += [os.fspath(given.model), "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--served-model-name", "tiny"]
    if given.tensor > 1:
        argv += ["-tp", str(given.tensor)]
    pairs = dict(word.split("=", 1) for word in given.env)
    return ServePlan(
        name="timed",
        model=given.model,
        served_name="tiny",
        python=given.python,
        argv=(*argv, *given.words),
        env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **pairs},
        unset=(),
        cwd=Path("/"),
        host="127.0.0.1",
        port=port,
        api_key_file=None,
        tensor=given.tensor,
        pipeline=1,
        cards=numbers,
        log=records.folder(root) / "timed.log",
        drain_s=0,
    )


def _start(console: Console, plan: ServePlan, root: StateRoot) -> dict[str, Any]:
    """Start it, and say what we added to the time after which it answers at all."""
    listens: list[float] = []

    def watch() -> None:
        record = records.of_plan(plan, "", 0.0)
        while not probe.health(record).ok:
            time.sleep(0.02)
        listens.append(time.monotonic())

    thread = threading.Thread(target=watch, daemon=True)
    start = time.monotonic()
    thread.start()
    done = serve(console, plan, root)
    thread.join()
    own = listens[0] - start
    return {
        "ready_s": done.seconds,
        "own_s": own,
        "first_token_s": done.first_token_s,
        "added_s": done.seconds - own - done.first_token_s,
        "text": done.text,
    }


def _kill(record: ServerRecord, before: list[int | None]) -> dict[str, Any]:
    """Kill the API server and see how long the rest and the memory stay."""
    pids = [m.pid for m in members.of(record)]
    os.kill(record.pid, signal.SIGKILL)
    start = time.monotonic()
    gone = back = None
    while time.monotonic() - start < 60 and (gone is None or back is None):
        if gone is None and not members.of(record):
            gone = time.monotonic() - start
        returned = cards.returned(record.cards, record.baseline, pids)
        if back is None and gone is not None and all(one.back for one in returned):
            back = time.monotonic() - start
        time.sleep(0.02)
    return {"processes": len(pids), "gone_s": gone, "memory_back_s": back}


def _record(root: StateRoot) -> ServerRecord:
    found = records.load(root, "timed")
    assert found is not None
    return found


def _use(record: ServerRecord) -> list[cards.CardUse]:
    return cards.use(record.cards, [m.pid for m in members.of(record)])


def _used(numbers: tuple[int, ...]) -> list[int | None]:
    found = {card.index: card.used for card in gpu.read().cards} if numbers else {}
    return [u // MIB if (u := found.get(n)) is not None else None for n in numbers]


if __name__ == "__main__":
    sys.exit(main())
