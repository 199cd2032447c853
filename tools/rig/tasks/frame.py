# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What every task shares: its decorator, its words, its exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from invoke.exceptions import Exit, ParseError
from invoke.program import Program
from invoke.tasks import task as invoke_task

task = functools.partial(invoke_task, auto_shortflags=False)
"""A task without short flags: Invoke makes them of whatever letter is free, and ``-h``
would be ``--when-free``."""

_INTERRUPTED = 130

_SAID = {
    "json": "print one JSON document on stdout and nothing else there",
    "profile": "profile to use (default: the one that fits the target)",
    "source": "checkout to work on (default: this one, else the bundled sample)",
    "jobs": "compiles at once (default: what memory and cores allow)",
    "when_free": "wait with the switch until nobody uses what is in force",
    "any_commit": "place an overlay's libraries although HEAD is another commit",
}


def described(*names: str, **more: str) -> dict[str, str]:
    """Return the help of options: of those that several tasks have, and its own."""
    return {**{name: _SAID[name] for name in names}, **more}


def do(body: Callable[[Any], Any], as_json: bool = False) -> None:
    """Run a step through the one error handler and leave with its exit code.

    Raises
    ------
    Exit
        With the step's code, when that is not 0.
    """
    from tools.rig.base.report import run_command

    def heard(console: Any) -> Any:
        with _interrupts():
            return body(console)

    _note("running")
    code = run_command(heard, as_json=as_json)
    _note(str(code))
    if code:
        raise Exit(code=code)


def read_words(parse: Callable[[Program], None]) -> Callable[[Program], None]:
    """Return Invoke's reading of the command line, mended in two ways.

    Lists of words behind a task, which Invoke does not have, become flags; and an
    unknown task or flag ends with 2, the code for wrong usage, where Invoke says 1.
    """

    def parse_tasks(program: Program) -> None:
        from tools.rig.base import typed

        program.core.unparsed = typed.words_as_flags(
            program.core.unparsed, "diagnose", "--log", ("--log", "--lang")
        )
        program.core.unparsed = typed.rest_as_flag(
            program.core.unparsed, program.argv, ("serve-tp2", "serve-unit"), "--rest"
        )
        try:
            parse(program)
        except ParseError as exc:
            message = f"error: {exc}\nhint: invoke --list"
            if exc.context is not None and exc.context.name:
                message += f", or invoke --help {exc.context.name}"
            _note("2")
            raise Exit(message, code=2) from exc

    return parse_tasks


def need_values(parse: Callable[[Program], None]) -> Callable[[Program], None]:
    """Return a reading of the command line that ends with 2 where an option is empty.

    As with a variable of a script that is not set: a task could not tell it from an
    option that was not given.
    """

    def parse_tasks(program: Program) -> None:
        from tools.rig.base import typed

        parse(program)
        empty = typed.empty_options(program.tasks)
        if empty:
            do(lambda console: typed.refuse_empty(empty), "--json" in program.argv)

    return parse_tasks


def hear_interrupts(parse: Callable[[Program], None]) -> Callable[[Program], None]:
    """Return a reading of the command line from which on Ctrl-C ends us with 130.

    Invoke says 1, and no word, and Python's own end is a traceback.
    """

    def parse_tasks(program: Program) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
        parse(program)

    return parse_tasks


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt a step, which ends what it began, and not end us at once."""
    ours = signal.getsignal(signal.SIGINT) is _interrupted
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, _interrupted)


def _interrupted(signum: int, frame: object) -> None:
    """End before anything was begun, or after all was done."""
    # a second one would be told by Python, which ends already
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _note(str(_INTERRUPTED))
    if sys.stderr is not None:
        # past the buffer, which may be in the middle of another line
        with contextlib.suppress(OSError):
            os.write(2, b"error: interrupted\n")
    raise SystemExit(_INTERRUPTED)


def _note(word: str) -> None:
    """Tell the script above nox, which knows only success and failure, what we know."""
    file = os.environ.get("RIG_EXIT_FILE")
    if file:
        # who cleaned it away, or filled its disk, costs the exact code and no result
        with contextlib.suppress(OSError):
            Path(file).write_text(f"{word}\n", encoding="utf-8")
