# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Starts a server that outlives us, as a session of its own with a keeper.

What the keeper is for stands in :mod:`tools.rig.base.keeper`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType

from tools.rig.base import regular_file
from tools.rig.base.errors import CannotError, unwritable
from tools.rig.base.process import missing, not_started, spawn

MOST_BYTES = 32 << 20
"""Bytes after which a log is put aside."""

KEPT = 3
"""Older logs that are kept beside it."""

START_S = 10.0
"""Seconds that a keeper may take to say that the program runs."""

_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from tools.rig.base import keeper; sys.exit(keeper.main(sys.argv[1:]))"
)
_ROOT = Path(__file__).parents[3]


@dataclass
class Daemon:
    """A server that was started: the leader of its session, and the program itself.

    It hangs on a tether: while we hold that, our end, by whatever signal, is the
    server's end too. :meth:`release` lets it live alone.
    """

    session: int
    pid: int
    tether: FileIO

    def release(self) -> None:
        """Let the server outlive us."""
        if not self.tether.closed:
            with contextlib.suppress(OSError):
                self.tether.write(b"k")
            self.tether.close()

    def __enter__(self) -> Daemon:
        """Return the daemon."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the tether: a server that was not released is told to stop."""
        self.tether.close()


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    end: Path,
    grace: float = 15.0,
    most: int = MOST_BYTES,
    kept: int = KEPT,
) -> Daemon:
    """Start a program in a session of its own, its output going to a log that rotates.

    Parameters
    ----------
    env
        The program's whole environment.
    cwd
        The folder it starts in.
    log
        A log that is there already is put aside first.
    end
        The keeper writes there how the program ended (JSON): ``code`` as Python counts,
        ``ended`` (seconds since 1970), ``asked`` whether it was told to stop,
        ``orphans`` and ``killed`` (processes that it left), ``shm_removed``, ``lost``
        (bytes of output that the disk did not take).
    grace
        Seconds that it gets to stop by itself when its tether ends.
    most, kept
        Bytes of one log, and older logs that are kept.

    Raises
    ------
    CannotError
        When the program cannot be started.
    StepFailed
        When the log cannot be written.
    """
    args = [os.fspath(a) for a in argv]
    absent = missing(args, env, cwd)
    if absent is not None:
        raise absent
    _try_to_write(log)
    with contextlib.suppress(FileNotFoundError):
        end.unlink()
    read_end, write_end = os.pipe()
    tether = FileIO(write_end, "w")
    order = {
        "log": os.fspath(log),
        "end": os.fspath(end),
        "most": most,
        "kept": kept,
        "tether": read_end,
        "grace": grace,
    }
    python = [sys.executable, "-I", "-S", "-B", "-c", _KEEPER, os.fspath(_ROOT)]
    try:
        proc = spawn(
            [*python, json.dumps(order), *args],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            merge=True,
            keep_fd=read_end,
        )
    except OSError as exc:
        tether.close()
        raise not_started(args, cwd, exc) from exc
    finally:
        os.close(read_end)
    try:
        report = _report(proc)
    except BaseException:
        tether.close()
        raise
    return Daemon(report["session"], report["pid"], tether)


def how_it_ended(end: Path) -> dict[str, object] | None:
    """Return what a keeper wrote when its program ended; None while it runs."""
    try:
        data = json.loads(regular_file.read(end).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _report(proc: subprocess.Popen[str]) -> dict[str, int]:
    assert proc.stdout is not None
    with proc.stdout as out:
        said = out.readline()
    proc.wait(START_S)
    try:
        report = json.loads(said)
    except ValueError:
        report = {"error": f"its keeper did not start: {said.strip()}"}
    if "error" in report:
        raise CannotError(str(report["error"]), hint="invoke doctor")
    return {name: int(value) for name, value in report.items()}


def _try_to_write(log: Path) -> None:
    """Find out now whether the log's disk takes anything at all."""
    trial = log.with_name(f".{log.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with trial.open("wb", buffering=0) as fh:
            fh.write(b"x" * 4096)
    except OSError as exc:
        raise unwritable(log, exc, "The log of a server needs room.") from exc
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
