# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How a server comes to life: started once, recorded, waited for until it speaks."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping

import filelock

from tools.rig.base import daemon
from tools.rig.base.daemon import Daemon
from tools.rig.base.errors import (
    CannotError,
    InUseError,
    StepFailed,
    UsageError,
    quoted,
)
from tools.rig.base.state import StateRoot
from tools.rig.guard import lock
from tools.rig.host import gpu, processes
from tools.rig.serve import cards, ending, listening, members, ports, probe
from tools.rig.serve import record as records
from tools.rig.serve.loading import Follower, stage, version
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord

POLL_S = 0.2
FIRST_TOKEN_S = 300.0
"""Seconds for the first token: some kernels are compiled when they are first used."""

FAILING_S = 30.0
"""Seconds for which completions may fail at once: an engine that dies under the first
token takes a moment to say so."""

_LOCK_S = 30.0


def begin(
    root: StateRoot,
    plan: ServePlan,
    *,
    env: Mapping[str, str] | None = None,
    ask: cards.Ask = gpu.read,
) -> tuple[ServerRecord, Daemon]:
    """Start a server and record it; it hangs on us until it is released.

    Parameters
    ----------
    env
        Our own environment when None.
    ask
        Reads the cards.

    Raises
    ------
    InUseError
        When a server of that name or on that port runs, when the record of that name
        cannot be read, when something else has the port, or when the environment is
        being built.
    RigError
        When it cannot be started or recorded.
    """
    env = os.environ if env is None else env
    root.make(records.folder(root))
    with _alone(root):
        _check(root, plan)
        token = secrets.token_hex(8)
        record = records.of_plan(plan, token, time.time())
        record.baseline = cards.baseline(plan.cards, ask)
        started = daemon.start(
            plan.argv,
            env={**environment(plan, env), records.TOKEN: token},
            cwd=plan.cwd,
            log=plan.log,
            end=record.end,
            grace=plan.drain_s + 15.0,
        )
        try:
            record.pid, record.session = started.pid, started.session
            record.start_ticks = processes.start_time(started.pid) or 0
            record.session_ticks = processes.start_time(started.session) or 0
            records.save(root, record)
        except BaseException:
            started.tether.close()
            raise
    return record, started


def environment(plan: ServePlan, env: Mapping[str, str]) -> dict[str, str]:
    """Return a server's whole environment; the API key is read from its file.

    Raises
    ------
    UsageError
        When the file holds no key.
    """
    made = {k: v for k, v in env.items() if k not in plan.unset}
    made.update(plan.env)
    if plan.api_key_file is not None:
        key = probe.read_key(plan.api_key_file)
        if not key:
            raise UsageError(
                f"there is no key in {plan.api_key_file}",
                hint="write one line with the key into it, and chmod 600",
            )
        made[probe.KEY] = key
    return made


def wait_until_ready(
    record: ServerRecord,
    follower: Follower,
    *,
    timeout: float,
    key: str,
    on_lines: Callable[[list[str]], None] = lambda lines: None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> probe.Completion:
    """Wait until a token that makes sense came out of a server that was started.

    Parameters
    ----------
    follower
        Reads its log; it can be read on from there.
    timeout
        Seconds for everything.
    on_lines, on_stage
        Get the new lines of its log, and each stage that they name.

    Raises
    ------
    StepFailed
        When the server ended, when what comes out is no text, or when time is up.
    InUseError
        When somebody else took its port before it did.
    CannotError
        When it cannot be told who has its port.
    """
    deadline = time.monotonic() + timeout
    failing: float | None = None
    while True:
        lines = follower.lines()
        if lines:
            on_lines(lines)
            record.version = record.version or version(lines)
            if stage(lines):
                on_stage(stage(lines))
        if not members.api_alive(record):
            _let_it_finish(record)
            on_lines(follower.lines())
            raise ending.why(record)
        if time.monotonic() >= deadline:
            raise StepFailed(
                f"the server {record.name} was not ready within {timeout:.0f} s",
                usual="A large model on a slow disk takes long to load.",
                hint=f"less {shlex.quote(record.log)}",
            )
        # whoever answers first need not be the server, and is told no key
        answer = probe.health(record)
        if answer.status and _listens_itself(record) and answer.ok:
            left = min(FIRST_TOKEN_S, deadline - time.monotonic())
            said = probe.completion(record, timeout=max(1.0, left), key=key)
            if said.ok and _listens_itself(record):
                return said
            failing = time.monotonic() if failing is None else failing
            late = not said.ok and time.monotonic() - failing >= FAILING_S
            if said.timed_out or said.refused or said.nonsense or late:
                raise _speaks_no_sense(record, said)
        time.sleep(POLL_S)


def _check(root: StateRoot, plan: ServePlan) -> None:
    """Refuse what another server, or another program, is in the way of."""
    for bad in records.broken(root):
        if bad.name == plan.name:
            raise InUseError(
                f"the name {plan.name} is taken: {bad.problem}",
                usual="A server of that name may run, and would never be found again.",
                hint=f"{bad.hint}, or take another --name",
            )
    for other in records.listing(root):
        running = members.of(other)
        if not running:
            continue
        if other.name == plan.name:
            raise InUseError(
                f"a server called {plan.name} is there already (PID {running[0].pid})",
                hint=f"invoke serve-stop --name {shlex.quote(plan.name)}",
            )
        if other.port == plan.port:
            raise InUseError(
                f"port {plan.port} belongs to the server {other.name}",
                hint=f"--port {plan.port + 1}, or invoke serve-stop --name "
                f"{shlex.quote(other.name)}",
            )
    problem = ports.look(plan.host, plan.port)
    if problem is not None:
        kind = InUseError if problem.busy else CannotError
        raise kind(problem.what, hint=problem.hint)
    builder = lock.holder_of(plan.environment)
    if builder is not None:
        raise InUseError(
            f"{plan.environment} is being built",
            details=[str(builder)],
            hint="wait until the build is done",
        )


@contextlib.contextmanager
def _alone(root: StateRoot) -> Iterator[None]:
    """Let one server at a time look for its port and take it.

    Raises
    ------
    InUseError
        When another one is being started for too long.
    CannotError
        When the lock file cannot be opened, or its disk knows no locks.
    """
    lock_file = records.folder(root) / ".start.lock"
    # where several users share the folder, each of them locks the one file
    lock = filelock.FileLock(
        lock_file, timeout=_LOCK_S, mode=0o666, fallback_to_soft=False
    )
    try:
        lock.acquire()
    except filelock.Timeout as exc:
        raise InUseError(
            "another server is being started", hint=f"fuser -v {quoted(lock_file)}"
        ) from exc
    except (OSError, NotImplementedError) as exc:
        raise CannotError(
            f"cannot lock {lock_file}: {getattr(exc, 'strerror', None) or exc}",
            usual="The folder belongs to another user, is read-only, or lies on a disk "
            "that knows no locks.",
            hint=f"ls -ld {quoted(lock_file)} {quoted(lock_file.parent)}",
        ) from exc
    try:
        yield
    finally:
        lock.release()


def _listens_itself(record: ServerRecord) -> bool:
    """Say whether the server itself has its port; False while nobody has it."""
    found = listening.look(record)
    look = f"ss -ltnp 'sport = :{record.port}'"
    if found.who is listening.Who.OTHERS:
        raise InUseError(
            f"the server {record.name} cannot listen: {found.words}",
            usual="Another program took the port while the server was loading.",
            hint=f"--port {record.port + 1}, or {look}",
        )
    if found.who is listening.Who.UNKNOWN:
        raise CannotError(
            f"whether {record.name} is ready cannot be told: {found.words}", hint=look
        )
    return found.who is listening.Who.OWN


def _let_it_finish(record: ServerRecord) -> None:
    """Wait until the keeper has ended the rest and written down how it was."""
    deadline = time.monotonic() + 20.0
    while members.of(record) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _speaks_no_sense(record: ServerRecord, said: probe.Completion) -> StepFailed:
    hint = f"less {shlex.quote(record.log)}"
    if said.refused:
        return StepFailed(
            f"the server {record.name} refuses a completion: {said.problem}",
            usual="A key that it wants and we do not know, or a model that makes no "
            "text.",
            hint=hint,
        )
    if said.timed_out:
        return StepFailed(
            f"the server {record.name} listens, but made {said.problem}",
            usual="A card or a worker hangs.",
            hint=hint,
        )
    if not said.nonsense:
        return StepFailed(
            f"the server {record.name} listens, but fails at a completion: "
            f"{said.problem}",
            usual="Its log says why.",
            hint=hint,
        )
    return StepFailed(
        f"the server {record.name} answers, but {said.problem}",
        usual="A model that computes NaN answers so: a quantisation or a kernel that "
        "does not work on this card, or damaged weights.",
        hint=hint,
    )
