# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The step ``serve-tp2``: start a server, and come back when a token came out of it."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.rig.base.console import Console, duration
from tools.rig.base.daemon import Daemon
from tools.rig.base.errors import ExitCode, Interrupted, RigError, StepFailed
from tools.rig.base.state import StateRoot
from tools.rig.host import gpu
from tools.rig.serve import cards, ending, life, members, ports, probe, stop
from tools.rig.serve import record as records
from tools.rig.serve.loading import Follower
from tools.rig.serve.plan import READY_S, ServePlan
from tools.rig.serve.record import ServerRecord

_LOOK_S = 0.25
_BY_OTHERS = "stopped by serve-stop"
_HEARD = 2


@dataclass(frozen=True)
class Served:
    """A server that was started.

    ``seconds`` is the time until it was ready, ``first_token_s`` how much of that the
    first completion took; ``exit_code`` that of a server in the foreground.
    """

    name: str
    pid: int
    url: str
    model: str
    served_name: str
    log: str
    seconds: float
    first_token_s: float
    text: str
    exit_code: int = ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**self.__dict__}


def serve(
    console: Console,
    plan: ServePlan,
    root: StateRoot,
    *,
    foreground: bool = False,
    timeout: float = READY_S,
    ask: cards.Ask = gpu.read,
) -> Served:
    """Start a server; in the foreground, also stay until it ends.

    Parameters
    ----------
    foreground
        Show its log and stop it on Ctrl-C, SIGTERM and SIGHUP.
    timeout
        Seconds until it must be ready.
    ask
        Reads the cards.

    Raises
    ------
    InUseError
        When its name, its port or its environment is not free.
    StepFailed
        When it does not become ready, with the root cause; nothing of it is left then.
    Interrupted
        When we are told to stop, or when somebody else stops it before it is ready;
        nothing of it is left. In the foreground it is no fault to be stopped by
        somebody else: a supervisor must not start it again.
    """
    for line in plan.lines():
        console.say(f"  {line}")
    start = time.monotonic()
    record, daemon = life.begin(root, plan, ask=ask)
    log = Follower(Path(record.log))
    ear = _Ear()
    with ear.listening(), daemon:
        try:
            with console.step(f"starting {plan.name}"):
                said = _until_ready(console, root, record, log, timeout, foreground)
            done = _served(record, time.monotonic() - start, said)
            console.mark(
                "ok",
                f"{record.name} is ready at {done.url} after {duration(done.seconds)}: "
                f"it said {said.text!r}",
            )
            if foreground:
                _stay(console, root, record, log)
                records.remove(root, record)
                return done
            daemon.release()
            return done
        except KeyboardInterrupt:
            if _stop(console, root, record, daemon, ear):
                done_to = f"the server {record.name} was stopped"
                raise Interrupted(f"interrupted; {done_to}") from None
            raise Interrupted(
                f"interrupted; the server {record.name} was told to stop",
                hint=f"invoke serve-stop --name {shlex.quote(record.name)}",
            ) from None
        except RigError:
            if not _stopped_by_others(root, record):
                _stop(console, root, record, daemon, ear)
                raise
            console.clear()
            words = f"the server {record.name} was {_BY_OTHERS}"
            if not foreground:
                raise Interrupted(f"{words} before it was ready") from None
            console.say(words)
            nothing = probe.Completion("")
            return _served(record, time.monotonic() - start, nothing)


def _until_ready(
    console: Console,
    root: StateRoot,
    record: ServerRecord,
    log: Follower,
    timeout: float,
    foreground: bool,
) -> probe.Completion:
    told = ""

    def on_stage(stage: str) -> None:
        nonlocal told
        words = f"{stage}" if stage.endswith("%") else ""
        if words:
            console.live(f"  {words}")
        elif stage != told and not foreground:
            told = stage
            console.say(f"  {stage}")

    said = life.wait_until_ready(
        record,
        log,
        timeout=timeout,
        key=probe.key_of(record),
        on_stage=on_stage,
        on_lines=(lambda lines: _show(console, lines)) if foreground else _ignore,
    )
    console.clear()
    record.ready = time.time()
    there = members.note(record)
    record.roles = dict(Counter(member.role for member in there))
    if not records.update(root, record, "ready", "roles", "members", "shm", "version"):
        # without a record nobody would find it again
        raise StepFailed(
            f"the record of {record.name} is gone, or belongs to a later server",
            hint="invoke serve-status",
        )
    return said


def _stopped_by_others(root: StateRoot, record: ServerRecord) -> bool:
    """Wait while somebody else stops the server; say whether that has ended it."""
    while ending.by_others(root, record) and members.of(record):
        now = records.load(root, record.name)
        if now is None or now.token != record.token or not now.being_stopped:
            # nobody cares for what is left
            return False
        time.sleep(_LOOK_S)
    return ending.by_others(root, record)


def _stay(
    console: Console, root: StateRoot, record: ServerRecord, log: Follower
) -> None:
    """Show the rest of the log until the server ends.

    Raises
    ------
    StepFailed
        When it ended by itself and not with 0; being stopped by somebody is no fault.
    """
    while members.of(record):
        _show(console, log.lines())
        time.sleep(_LOOK_S)
    _show(console, log.lines())
    if ending.by_others(root, record):
        console.say(f"the server {record.name} was {_BY_OTHERS}")
        return
    ended = ending.how(record)
    console.say(f"the server {record.name}: {ended}")
    if ended != "it ended with exit status 0":
        raise ending.why(record, "ended by itself")


def _stop(
    console: Console,
    root: StateRoot,
    record: ServerRecord,
    daemon: Daemon,
    ear: _Ear,
) -> bool:
    """Take a server back that we started; say whether all of it is gone.

    A Ctrl-C meanwhile makes it quick, and no further one is heard.
    """
    try:
        try:
            console.clear()
            stop.stop(root, record, say=console.say)
        except KeyboardInterrupt:
            ear.deaf = True
            console.say(f"  stopping {record.name} at once; Ctrl-C does no more now")
            stop.stop(root, record, drain=0, say=console.say)
    except RigError as exc:
        # the reason why it had to be stopped is told as the error
        for line in exc.lines():
            console.say(line)
        return False
    finally:
        daemon.tether.close()
    return True


class _Ear:
    """Hears signals as interrupts: the first stops a server, the second makes it quick.

    Further ones do nothing. A quick stop takes seconds, and who broke it off would
    leave a record of what nobody runs.
    """

    def __init__(self) -> None:
        self.deaf = False
        self._heard = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to what would interrupt us; ignored signals stay ignored."""
        kept = {}
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            old = signal.getsignal(sig)
            # others were made an interrupt by nobody, and are none here either
            if callable(old):
                # outside the main thread Python takes no signals
                with contextlib.suppress(ValueError):
                    signal.signal(sig, self._hear)
                    kept[sig] = old
        try:
            yield
        finally:
            for sig, old in kept.items():
                signal.signal(sig, old)

    def _hear(self, signum: int, frame: object) -> None:
        self._heard += 1
        # counted too, since two may come before anybody can make us deaf
        if not self.deaf and self._heard <= _HEARD:
            raise KeyboardInterrupt


def _served(record: ServerRecord, seconds: float, said: probe.Completion) -> Served:
    return Served(
        name=record.name,
        pid=record.pid,
        url=f"http://{ports.joined(record.address, record.port)}/v1",
        model=record.model,
        served_name=record.served_name,
        log=record.log,
        seconds=seconds,
        first_token_s=said.seconds,
        text=said.text,
    )


def _show(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.say(line)


def _ignore(lines: list[str]) -> None:
    """Take the lines of a log that nobody reads now."""
