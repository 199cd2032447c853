# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The Invoke namespace: one thin task a step. ``invoke --list`` is the contents page.

The steps themselves live in ``tools/rig/steps`` and know nothing of Invoke; each is
imported when its task runs, so that listing the tasks stays fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit, ParseError
from invoke.program import Program
from invoke.tasks import task

_HELP = {
    "json": "print one JSON document on stdout and nothing else there",
    "profile": "profile to use (default: the one that fits the target)",
    "source": "checkout to work on (default: this one, else the bundled sample)",
    "jobs": "compiles at once (default: what memory and cores allow)",
    "when_free": "wait with the switch until nobody uses what is in force",
    "any_commit": "place an overlay's libraries although HEAD is another commit",
}


def _usage_errors_are_2(parse: Callable[[Program], None]) -> Callable[[Program], None]:
    """Let an unknown task or flag end with the code for wrong usage; Invoke says 1."""

    def parse_tasks(program: Program) -> None:
        from tools.rig.base import typed

        # Invoke has no lists of words behind a task
        program.core.unparsed = typed.words_as_flags(
            program.core.unparsed, "diagnose", "--log", ("--log", "-l", "--lang", "-a")
        )
        try:
            parse(program)
        except ParseError as exc:
            message = f"error: {exc}\nhint: invoke --list"
            if exc.context is not None and exc.context.name:
                message += f", or invoke {exc.context.name} --help"
            _note("2")
            raise Exit(message, code=2) from exc

    return parse_tasks


def _do(body: Callable[[Any], Any], as_json: bool = False) -> None:
    """Run a step through the one error handler and leave with its exit code."""
    from tools.rig.base.report import run_command

    _note("running")
    code = run_command(body, as_json=as_json)
    _note(str(code))
    if code:
        raise Exit(code=code)


def _note(word: str) -> None:
    """Tell the script above nox, which knows only success and failure, what we know."""
    file = os.environ.get("RIG_EXIT_FILE")
    if file:
        Path(file).write_text(f"{word}\n", encoding="utf-8")


def _help(*names: str, **more: str) -> dict[str, str]:
    return {**{name: _HELP[name] for name in names}, **more}


@task(
    iterable=["only"],
    help=_help(
        "json",
        "profile",
        "source",
        only="run this check alone (repeatable)",
        list_="list the checks",
        compare="a file of another host's --json: show what differs",
    ),
)
def doctor(
    c: Context,
    only: list[str],
    list_: bool = False,
    compare: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Check this machine: ready, ready with work-rounds, or why not."""
    from tools.rig.steps import commands

    _do(
        lambda console: commands.doctor(
            console, only, list_, compare, profile=profile, source=source
        ),
        json,
    )


@task(name="cuda-toolkit", help=_help("json", "profile", "source"))
def cuda_toolkit(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Find or bring a CUDA toolkit and host compiler that fit the profile."""
    from tools.rig.steps import commands

    _do(lambda console: commands.toolkit(console, profile=profile, source=source), json)


@task(name="shim-glibc", help=_help("json", "profile", "source"))
def shim_glibc(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Probe nvcc against this system's math headers; shadow them where they clash."""
    from tools.rig.steps import commands

    _do(lambda console: commands.shim(console, profile=profile, source=source), json)


@task(name="git-safe", help=_help("json", "source"))
def git_safe(c: Context, json: bool = False, source: str = "") -> None:
    """Let git work on a checkout that another user owns, for our processes only."""
    from tools.rig.steps import commands

    _do(lambda console: commands.git_safe(console, source=source), json)


@task(name="venv-local", help=_help("json", "profile", "source"))
def venv_local(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Put the environment on a fast local disk and link .venv to it."""
    from tools.rig.steps import commands

    _do(lambda console: commands.venv(console, profile=profile, source=source), json)


@task(help=_help("json", "profile", "source", "jobs", wheel="plan a wheel build"))
def plan(
    c: Context,
    json: bool = False,
    profile: str = "",
    source: str = "",
    jobs: str = "",
    wheel: bool = False,
) -> None:
    """Print what build-sm70 would do, and do nothing."""
    from tools.rig.steps import commands

    _do(
        lambda console: commands.plan(
            console, wheel, profile=profile, source=source, jobs=jobs
        ),
        json,
    )


@task(
    name="build-sm70",
    help=_help(
        "json",
        "profile",
        "source",
        "jobs",
        "when_free",
        wheel="make a generation from the wheel, not editable",
    ),
)
def build_sm70(
    c: Context,
    json: bool = False,
    profile: str = "",
    source: str = "",
    jobs: str = "",
    wheel: bool = False,
    when_free: bool = False,
) -> None:
    """Build beside what runs, verify, and switch once nobody uses what is in force."""
    from tools.rig.steps import commands

    _do(
        lambda console: commands.build(
            console, wheel, when_free, profile=profile, source=source, jobs=jobs
        ),
        json,
    )


@task(
    help=_help(
        "json", "profile", "source", "when_free", "any_commit", build="id, or its start"
    )
)
def activate(
    c: Context,
    build: str,
    json: bool = False,
    profile: str = "",
    source: str = "",
    when_free: bool = False,
    any_commit: bool = False,
) -> None:
    """Bring a build that is kept into force."""
    from tools.rig.steps import commands

    words = (build, when_free, any_commit)
    _do(
        lambda console: commands.activate(
            console, *words, profile=profile, source=source
        ),
        json,
    )


@task(help=_help("json", "profile", "source", "when_free", "any_commit"))
def rollback(
    c: Context,
    json: bool = False,
    profile: str = "",
    source: str = "",
    when_free: bool = False,
    any_commit: bool = False,
) -> None:
    """Return to the build that was in force before."""
    from tools.rig.steps import commands

    words = ("", when_free, any_commit)
    _do(
        lambda console: commands.activate(
            console, *words, profile=profile, source=source
        ),
        json,
    )


@task(name="in-use", help=_help("json", "source"))
def in_use(c: Context, json: bool = False, source: str = "") -> None:
    """Say who runs from the environment; exit 4 when someone does."""
    from tools.rig.steps import commands

    _do(lambda console: commands.in_use(console, source=source), json)


@task(help=_help("json", "profile", "source"))
def verify(c: Context, json: bool = False, profile: str = "", source: str = "") -> None:
    """Prove that every CUDA library holds code for the card, and that it imports."""
    from tools.rig.steps import commands

    _do(lambda console: commands.verify(console, profile=profile, source=source), json)


@task(
    name="install-wheel",
    help=_help("json", "profile", "source", "when_free", wheel="the file"),
)
def install_wheel(
    c: Context,
    wheel: str,
    json: bool = False,
    profile: str = "",
    source: str = "",
    when_free: bool = False,
) -> None:
    """Turn a downloaded wheel into a verified environment."""
    from tools.rig.steps import commands

    _do(
        lambda console: commands.install_wheel(
            console, wheel, when_free, profile=profile, source=source
        ),
        json,
    )


@task(help=_help("json"))
def builds(c: Context, json: bool = False) -> None:
    """List builds, newest first: which is in force, which is kept, who uses it."""
    from tools.rig.steps import commands

    _do(lambda console: commands.builds(console), json)


@task(
    help=_help(
        "json",
        build="id of the build, or its start (default: the newest that compiled)",
        output="file or folder to write (default: reports/ in the state root)",
    )
)
def report(c: Context, build: str = "", output: str = "", json: bool = False) -> None:
    """Write one HTML page about a build: timeline, memory, what was slow."""
    from tools.rig.steps import commands

    _do(lambda console: commands.report(console, build, output), json)


@task(
    iterable=["log"],
    help=_help(
        "json",
        log="a log, or - for standard input (default: the last failed build's)",
        lang="en or zh (default: the locale's)",
    ),
)
def diagnose(c: Context, log: list[str], lang: str = "", json: bool = False) -> None:
    """Name the root cause in build and server logs: diagnose [LOG...|-]."""
    from tools.rig.steps import commands

    _do(lambda console: commands.diagnose(console, log, lang), json)


@task(
    help=_help(
        "json",
        "profile",
        "source",
        output="the archive to write (default: a name with the time, here)",
        show="list what would be in it, and write nothing",
    )
)
def bundle(
    c: Context,
    output: str = "",
    show: bool = False,
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Make one archive for an issue report, without secrets or names."""
    from tools.rig.steps import commands

    _do(
        lambda console: commands.bundle(
            console, output, show, profile=profile, source=source
        ),
        json,
    )


namespace = Collection(
    doctor,
    cuda_toolkit,
    shim_glibc,
    git_safe,
    venv_local,
    plan,
    build_sm70,
    in_use,
    verify,
    install_wheel,
    builds,
    activate,
    rollback,
    report,
    diagnose,
    bundle,
)
# Invoke reads this file before it parses the words behind its own options, and has no
# other place to say the code of a usage error; a checker sees a method that is replaced
_parse = _usage_errors_are_2(Program.parse_tasks)
Program.parse_tasks = _parse  # type: ignore[method-assign, assignment]
# a task's own signals and exit codes count, not those of Invoke's runner
namespace.configure({"run": {"in_stream": False}, "tasks": {"auto_dash_names": True}})
sys.dont_write_bytecode = True
