# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Every command line of uv, and downloads of many GB that survive a bad line.

uv keeps each finished file in its cache, so a second try goes on where the first broke
off. The cache lies on the environment's own disk: files are cloned or linked into the
environment, not copied.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import regex as re

from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds.uv_failure import decisive, failure, line_broke
from tools.rig.host import look

IDLE_S = 300.0
"""Seconds without output, traffic or work after which uv counts as stuck; longer than
the time-out that it gives the network itself."""

PAUSES_S = (5.0, 20.0, 60.0)
"""Seconds of rest before each new try; one try more than there are pauses."""

HTTP_TIMEOUT_S = 120
"""Seconds that uv waits for a silent server; its own 30 are short for a slow route."""

Stream = Callable[..., run.Result]
Run = Callable[..., run.Result]


def program(env: Mapping[str, str], executable: str = sys.executable) -> Path:
    """Return uv: the one beside this interpreter, else the one on the PATH.

    Raises
    ------
    CannotError
        When there is none.
    """
    beside = Path(executable).parent / "uv"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("uv", path=env.get("PATH", os.defpath))
    if found is None:
        raise CannotError(
            "uv is not installed",
            usual="It comes with the private environment that tools/nox makes.",
            hint="tools/nox -l",
        )
    return Path(found)


def environment(
    base: Mapping[str, str], root: StateRoot, *, offline: bool = False
) -> dict[str, str]:
    """Return the environment for uv: what the user has set stays, the rest is added.

    Parameters
    ----------
    base
        The user's environment. ``UV_CACHE_DIR``, ``UV_PYTHON_INSTALL_DIR`` and
        ``UV_HTTP_TIMEOUT`` are kept when they are set.
    root
        Where the cache and Pythons that uv brings go otherwise.
    offline
        Forbid uv the network.
    """
    env = dict(base)
    for name, value in (
        ("UV_CACHE_DIR", str(root.cache / "uv")),
        ("UV_PYTHON_INSTALL_DIR", str(root.toolkits / "python")),
        ("UV_HTTP_TIMEOUT", str(HTTP_TIMEOUT_S)),
    ):
        env[name] = env.get(name) or value
    if offline:
        env["UV_OFFLINE"] = "1"
    return env


def venv_argv(uv: Path, python: Path, folder: Path, prompt: str) -> list[str]:
    """Return the command that makes an environment which survives a rename."""
    return [
        str(uv),
        "venv",
        "--no-project",
        "--relocatable",
        "--no-python-downloads",
        "--python",
        str(python),
        "--prompt",
        prompt,
        str(folder),
    ]


def install_argv(uv: Path, python: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that installs into the environment of `python`."""
    return [str(uv), "pip", "install", "--python", str(python), *arguments]


def make_venv(
    uv: Path,
    python: Path,
    folder: Path,
    *,
    env: Mapping[str, str],
    prompt: str,
    ask: Run = run.run,
    limit_s: float = 300.0,
) -> bool:
    """Make an environment beside `folder` and rename it there when it is whole.

    Returns
    -------
    bool
        False when somebody else made one in the meantime; theirs stays.

    Raises
    ------
    StepFailed
        When uv fails; nothing half-made is left.
    """
    _sweep(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(3)}")
    try:
        beside.mkdir(parents=True)
        argv = venv_argv(uv, python, beside / "venv", prompt)
        got = ask(argv, env=env, cwd=beside, timeout=limit_s)
        if not got.ok:
            lines = [*got.out.splitlines(), *got.err.splitlines()]
            raise failure("uv cannot make the environment", lines, folder)
        (beside / "venv" / SENTINEL).touch()
        os.rename(beside / "venv", folder)
    except OSError as exc:
        if folder.is_dir():
            return False
        raise failure(
            f"cannot make the environment {folder}", [str(exc)], folder
        ) from exc
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def install_python(
    uv: Path,
    version: str,
    *,
    env: Mapping[str, str],
    log: Path,
    ask: Run = run.run,
    stream: Stream = run.stream,
) -> tuple[Path | None, str]:
    """Let uv bring a Python; return the interpreter, or None and why not."""
    said: deque[str] = deque(maxlen=40)
    got = stream(
        [str(uv), "python", "install", "--no-bin", version],
        on_line=said.append,
        log=log,
        env=env,
        cwd="/",
        idle_s=IDLE_S,
    )
    if not got.ok:
        return None, decisive(said) or f"exit status {got.code}"
    found = ask(
        [
            str(uv),
            "python",
            "find",
            "--managed-python",
            "--no-python-downloads",
            "--no-project",
            version,
        ],
        env=env,
        cwd="/",
        timeout=60,
    )
    text = found.out.strip()
    return (Path(text), "") if found.ok and text else (None, found.err.strip())


def install(
    uv: Path,
    python: Path,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    console: Console,
    log: Path,
    cwd: Path | None = None,
    nice: int = 0,
    idle_s: float = IDLE_S,
    pauses_s: Sequence[float] = PAUSES_S,
    stream: Stream = run.stream,
    sleep: Callable[[float], None] = time.sleep,
    disk: Callable[[Path], look.Disk] | None = None,
) -> None:
    """Install packages; go on after a broken line, and name the disk that hangs.

    Parameters
    ----------
    arguments
        Requirements and options of ``uv pip install``.
    log
        Gets all of uv's output.
    idle_s
        Seconds without any sign of life after which uv is ended.
    pauses_s
        Seconds of rest before each new try.
    stream, sleep, disk
        Seams for tests.

    Raises
    ------
    StepFailed
        When uv fails for another reason than the line, or too often.
    look.Hung
        When it stands still because a disk does not answer.
    """
    argv = install_argv(uv, python, arguments)
    seen = disk if disk is not None else lambda path: look.disk(path, measure_s=0)
    cache = env.get("UV_CACHE_DIR", "uv's cache")
    for number, pause in enumerate([*pauses_s, None], start=1):
        said: deque[str] = deque(maxlen=400)

        def on_line(line: str, said: deque[str] = said) -> None:
            said.append(line)
            console.live(line)

        got = stream(
            argv, on_line=on_line, log=log, env=env, cwd=cwd, nice=nice, idle_s=idle_s
        )
        console.clear()
        if got.ok:
            return
        if got.timed_out:
            _name_the_stuck(python, env, cwd, idle_s, seen)
            reason = f"nothing moved for {idle_s:.0f} s"
        elif line_broke(said):
            reason = decisive(said)
        else:
            raise failure("uv pip install failed", [*said], python, log)
        if pause is None:
            raise StepFailed(
                f"the download broke off {number} times",
                details=[*said][-8:],
                usual=f"The network is away or very slow. Finished files are kept in "
                f"{cache}; the next run goes on from there. Log: {log}",
                hint="export UV_DEFAULT_INDEX=<a package index nearby>",
            )
        console.mark(
            "warn",
            f"the download broke off ({reason}); try {number + 1} of "
            f"{len(pauses_s) + 1} in {pause:.0f} s, finished files are kept in {cache}",
        )
        sleep(pause)


def _name_the_stuck(
    python: Path,
    env: Mapping[str, str],
    cwd: Path | None,
    idle_s: float,
    disk: Callable[[Path], look.Disk],
) -> None:
    """Raise when one of the places that uv works with does not answer."""
    places = [python.parent.parent]
    places += [Path(env[n]) for n in ("UV_CACHE_DIR", "TMPDIR") if env.get(n)]
    places += [] if cwd is None else [cwd]
    for place in places:
        got = disk(place)
        if got.hung:
            raise look.Hung(str(place), got.mount, idle_s, got.details)


def _sweep(folder: Path) -> None:
    """Remove what earlier runs that are gone left beside `folder`."""
    shape = re.compile(re.escape(f".{folder.name}.") + r"(\d+)-[0-9a-f]{6}")
    with contextlib.suppress(FileNotFoundError):
        for entry in folder.parent.iterdir():
            found = shape.fullmatch(entry.name)
            if found and not Path("/proc", found[1]).exists():
                shutil.rmtree(entry, ignore_errors=True)
