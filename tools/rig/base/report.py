# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The one way that a command ends: its result, its message, its exit code.

Expected failures print their lines. An unexpected one is a bug of ours: its traceback
goes to a file, so that the user can pass it on, and the screen shows where that is.
"""

from __future__ import annotations

import datetime
import errno
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.rig.base import redact, streams
from tools.rig.base.console import Console, print_json
from tools.rig.base.errors import ExitCode, Interrupted, RigError, UsageError
from tools.rig.base.tree import signals_as_interrupts

LOOK_S = 0.5
"""Seconds between two looks whether our parent is still there."""

PARENT_VARIABLE = "RIG_PARENT"
"""Names the processes that we must not outlive (see :func:`watch_parent`)."""

_VERSIONS_OF = ("invoke", "nox", "filelock", "psutil", "packaging", "regex", "uv")


def run_command(
    body: Callable[[Console], Any],
    *,
    as_json: bool = False,
    console: Console | None = None,
) -> int:
    """Run the body of a command, show how it ended, and return its exit code.

    Parameters
    ----------
    body
        Gets the console. What it returns may have an ``exit_code`` and a ``to_json()``;
        a dict, list or None is data itself.
    as_json
        Print one JSON document on stdout, also for an error:
        ``{"error": {"what": ..., "usual": ..., "hint": ..., "details": [...],
        "code": ...}}``. People's text goes to stderr in any case.
    console
        Where people's text goes; a new one on stderr when None.
    """
    streams.occupy()
    console = console if console is not None else Console()
    try:
        return _ended(body, console, as_json)
    except Exception as exc:
        # a bug of ours: the user gets a file to pass on instead of a traceback
        return _failed(_crashed(exc), console, as_json)
    finally:
        streams.settle()


def _ended(body: Callable[[Console], Any], console: Console, as_json: bool) -> int:
    try:
        with signals_as_interrupts():
            watch_parent()
            _stand_somewhere()
            result = body(console)
            code = int(getattr(result, "exit_code", ExitCode.OK))
            data = _data(result) if as_json else None
    except RigError as exc:
        return _failed(exc, console, as_json)
    except KeyboardInterrupt:
        return _failed(Interrupted("interrupted"), console, as_json)
    if as_json and not _given(data, console):
        return int(ExitCode.FAILED)
    return code


def _stand_somewhere() -> None:
    """Refuse to work in a folder that was removed or put elsewhere under us.

    Raises
    ------
    UsageError
        With the way out.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the current folder does not exist any more",
            usual="It was removed, or replaced by another one of that name.",
            hint='cd "$PWD", or to the checkout',
        ) from None


def watch_parent(
    env: Mapping[str, str] | None = None,
    *,
    gone: Callable[[], None] | None = None,
    look_s: float = LOOK_S,
) -> threading.Thread | None:
    """Send ourselves SIGTERM when a process named in ``RIG_PARENT`` is gone.

    nox forwards no SIGTERM to what it runs, and a SIGKILL to whoever started nox
    forwards itself to nobody, so a step looks for itself whether all of them still
    wait for it. Without the variable nothing is watched.

    Parameters
    ----------
    env
        Our own environment when None. The variable holds pids with commas between
        them. One with a colon and its start time (in clock ticks) behind it is told
        from a later process of that number.
    gone
        Called instead of the signal.
    look_s
        Seconds between two looks.
    """
    # taken away, since what we start has us for a parent
    named = (
        os.environ.pop(PARENT_VARIABLE, "")
        if env is None
        else env.get(PARENT_VARIABLE, "")
    )
    watched = [there for there in map(_watch, named.split(",")) if there is not None]
    if not watched:
        return None

    def look() -> None:
        while all(there() for there in watched):
            time.sleep(look_s)
        (gone or _end_ourselves)()

    thread = threading.Thread(target=look, name="watch-parent", daemon=True)
    thread.start()
    return thread


def _watch(word: str) -> Callable[[], bool] | None:
    """Return what says whether a process is still there; None where none is meant."""
    pid, _, started = word.partition(":")
    if not pid.isdigit():
        return None
    parent = int(pid)
    if started:
        return lambda: _start_ticks(parent) == started
    # a wrapper may stand between us; then the process itself is looked at
    direct = os.getppid() == parent
    born = _start_ticks(parent)
    if born is None and os.getppid() != 1:
        # neither ours nor dead under our eyes: left over from somebody else's run
        return None
    if direct:
        return lambda: os.getppid() == parent
    return lambda: born is not None and _start_ticks(parent) == born


def crash_folder(env: Mapping[str, str]) -> Path:
    """Return the folder for reports of unexpected errors: below XDG_STATE_HOME."""
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "1cat-rig" / "crashes"


def _data(result: Any) -> Any:
    if hasattr(result, "to_json"):
        return result.to_json()
    return {} if result is None else result


def _failed(exc: RigError, console: Console, as_json: bool) -> int:
    for line in exc.lines():
        console.say(line)
    if as_json:
        error = {
            "what": exc.what,
            "usual": exc.usual,
            "hint": console.hint(exc.hint),
            "details": exc.details,
            "code": int(exc.code),
        }
        _given({"error": error}, console)
    return int(exc.code)


def _given(data: Any, console: Console) -> bool:
    """Print a document; say so where stdout does not take it, as on a full disk."""
    try:
        print_json(data)
    except OSError as exc:
        console.say(f"error: cannot write the result to stdout: {exc.strerror}")
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        console.say(f"hint: {'df -h' if full else 'add >result.json to the command'}")
        return False
    return True


def _crashed(exc: Exception) -> RigError:
    """Save the traceback, and return the error to show for it."""
    summary = f"unexpected {type(exc).__name__}: {exc}"
    try:
        path = _save(exc)
    except OSError as problem:
        return RigError(
            summary,
            details=traceback.format_exception(exc)[-1:],
            usual=f"This is a bug; its report could not be saved ({problem.strerror}).",
        )
    return RigError(
        summary,
        usual=f"This is a bug of the suite. Its report is in {path}",
        hint=f"cat {shlex.quote(os.fspath(path))}",
    )


def _save(exc: Exception) -> Path:
    now = datetime.datetime.now(datetime.timezone.utc)
    kernel = os.uname()
    name = f"{now:%Y%m%dT%H%M%S}-{os.getpid()}-"
    text = "\n".join(
        [
            f"at: {now.isoformat(timespec='seconds')}",
            f"command: {shlex.join(redact.argv([*sys.orig_argv]))}",
            f"folder: {_here()}",
            f"python: {sys.version.split()[0]} ({sys.executable})",
            f"system: {' '.join((kernel.sysname, kernel.release, kernel.machine))}",
            *(f"{package}: {_version(package)}" for package in _VERSIONS_OF),
            "",
            redact.text("".join(traceback.format_exception(exc))),
        ]
    )
    try:
        folder: Path | None = crash_folder(os.environ)
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(".txt", name, folder)
    except (OSError, RuntimeError):
        fd, path = tempfile.mkstemp(".txt", f"1cat-rig-crash-{name}")
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as fh:
        fh.write(text)
    return Path(path)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as exc:
        return f"gone ({exc.strerror})"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _end_ourselves() -> None:
    # to the main thread, whose system call must be broken off
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _start_ticks(pid: int) -> str | None:
    """Return when a process started, which tells it from a later one of its number."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
        fields = stat[stat.rindex(")") + 2 :].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields[19]
