# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The Invoke namespace: one thin task a step. ``invoke --list`` is the contents page.

The steps themselves live in ``tools/rig/steps`` and know nothing of Invoke; each is
imported when its task runs, so that listing the tasks stays fast.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit, ParseError
from invoke.program import Program
from invoke.tasks import task as invoke_task

task = functools.partial(invoke_task, auto_shortflags=False)
"""A task without short flags: Invoke makes them of whatever letter is free, and ``-h``
would be ``--when-free``."""

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
    build: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
    when_free: bool = False,
    any_commit: bool = False,
) -> None:
    """Bring a build that is kept into force."""
    from tools.rig.steps import commands

    words = (when_free, any_commit)
    _do(
        lambda console: commands.activate(
            console, commands.named(build), *words, profile=profile, source=source
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


_SERVER = {
    "model": "the model's folder",
    "tp": "cards that share each layer (default: 2)",
    "pp": "stages of layers",
    "preset": "names with commas; alone: list them",
    "environment": "any folder with bin/python and vLLM (default: the build in force)",
    "host": "address (default: 127.0.0.1)",
    "port": "default: 8000",
    "name": "default: the model's",
    "served_name": "name for clients",
    "cards": "indexes with commas (default: free ones joined by NVLink)",
    "api_key_file": "file with the key",
    "insecure": "another address without a key",
    "drain": "seconds for running requests when it stops",
    "timeout": "seconds until ready",
    "rest": "words for vLLM; better behind --",
}


def _typed(given: dict[str, Any], *also: str) -> dict[str, Any]:
    """Return a server's options out of a task's arguments."""
    names = [name for name in (*_SERVER, *also) if name != "rest"]
    found = {name: given[name] for name in names if name in given}
    # a flag whose value is left out is True
    return {k: "list" if k == "preset" and v is True else v for k, v in found.items()}


@task(
    help=_help(
        "json",
        "profile",
        model="the model's folder",
        tp="cards that share each layer (default: 2)",
        pp="stages of layers",
        memory="GiB of one card (default: the smallest here)",
        utilisation="share of a card for vLLM (default: 0.92)",
        max_len="context that must fit",
        kv_cache_dtype="type of the cache (default: two are compared)",
        speculative="tokens predicted ahead",
        eager="without CUDA graphs",
        text_only="without vision",
        upstream="a release of vLLM serves, and not the fork",
    )
)
def capacity(
    c: Context,
    model: str = "",
    json: bool = False,
    profile: str = "",
    tp: str = "",
    pp: str = "",
    memory: str = "",
    utilisation: str = "",
    max_len: str = "",
    kv_cache_dtype: str = "",
    speculative: str = "",
    eager: bool = False,
    text_only: bool = False,
    upstream: bool = False,
) -> None:
    """Tell whether a model fits on cards, and how much context, from its headers."""
    words = {k: v for k, v in locals().items() if k not in ("c", "json", "model")}
    cache, its = words.pop("kv_cache_dtype"), words.pop("profile")
    _do(lambda console: _serving().capacity(console, model, cache, its, **words), json)


@task(
    name="serve-tp2",
    optional=["preset"],
    help=_help(
        "json",
        "profile",
        "source",
        foreground="stay; Ctrl-C stops it",
        show="show the plan, start nothing",
        **_SERVER,
    ),
)
def serve_tp2(
    c: Context,
    model: str = "",
    tp: str = "",
    pp: str = "",
    preset: str = "",
    environment: str = "",
    host: str = "",
    port: str = "",
    name: str = "",
    served_name: str = "",
    cards: str = "",
    api_key_file: str = "",
    insecure: bool = False,
    drain: str = "",
    timeout: str = "",
    foreground: bool = False,
    show: bool = False,
    rest: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Start an OpenAI-compatible server; return when a token has come out of it."""
    typed, cli = _typed(locals(), "foreground", "show"), _cli(locals())
    _do(lambda console: _serving().serve_tp2(console, typed, rest, **cli), json)


@task(
    name="serve-status",
    help=_help(
        "json",
        name="one server (default: all)",
        no_probe="read counters only; have no token made",
        watch="look again every so many seconds",
    ),
)
def serve_status(
    c: Context,
    name: str = "",
    no_probe: bool = False,
    watch: str = "",
    json: bool = False,
) -> None:
    """Say how each server is: ready, draining, degraded, hung or dead, and why."""
    _do(lambda console: _serving().serve_status(console, name, no_probe, watch), json)


@task(
    name="serve-stop",
    help=_help(
        "json",
        name="which (default: the only one)",
        drain="seconds that running requests get",
    ),
)
def serve_stop(c: Context, name: str = "", drain: str = "", json: bool = False) -> None:
    """Stop a server's whole tree, and see that each card's memory is back."""
    _do(lambda console: _serving().serve_stop(console, name, drain), json)


@task(
    name="serve-logs",
    auto_shortflags=True,
    help={
        "name": "which (default: the only one)",
        "follow": "go on until the server ends",
        "lines": "how many of the end",
    },
)
def serve_logs(
    c: Context, name: str = "", follow: bool = False, lines: str = ""
) -> None:
    """Print the end of a server's log."""
    _do(lambda console: _serving().serve_logs(console, name, follow, lines))


@task(
    name="serve-unit",
    optional=["preset"],
    help=_help(
        "json",
        "profile",
        "source",
        look="what the timer calls: 0 when the server must be restarted",
        user="for the user's own systemd",
        run_as="whose processes they are (default: who owns the state root)",
        output="folder for the files (default: one in the state root)",
        **_SERVER,
    ),
)
def serve_unit(
    c: Context,
    model: str = "",
    tp: str = "",
    pp: str = "",
    preset: str = "",
    environment: str = "",
    host: str = "",
    port: str = "",
    name: str = "",
    served_name: str = "",
    cards: str = "",
    api_key_file: str = "",
    insecure: bool = False,
    drain: str = "",
    timeout: str = "",
    rest: str = "",
    look: bool = False,
    user: bool = False,
    run_as: str = "",
    output: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Write systemd units for a server, and a timer that restarts it when it hangs."""
    typed, cli = _typed(locals()), _cli(locals())
    how = {"look": look, "user": user, "run_as": run_as, "output": output}
    _do(lambda console: _serving().serve_unit(console, typed, rest, **how, **cli), json)


@task(
    name="serve-router",
    iterable=["server", "model"],
    help=_help(
        "json",
        "profile",
        "source",
        kind="llama-swap, litellm or nginx",
        server="a server that runs (repeatable; default: all)",
        model="a model's folder, for llama-swap (repeatable)",
        environment=_SERVER["environment"],
        name="names the files",
        host=_SERVER["host"],
        port="default: 8080",
        api_key_file="file with the key that clients send",
        insecure="another address without a key",
        certificate="for TLS, with nginx",
        certificate_key="for TLS, with nginx",
        memory="GiB of a card, to share it among models",
        idle="seconds after which llama-swap unloads a model",
        output="folder for the files (default: one in the state root)",
    ),
)
def serve_router(
    c: Context,
    server: list[str],
    model: list[str],
    kind: str = "",
    environment: str = "",
    name: str = "",
    host: str = "",
    port: str = "",
    api_key_file: str = "",
    insecure: bool = False,
    certificate: str = "",
    certificate_key: str = "",
    memory: str = "",
    idle: str = "",
    output: str = "",
    json: bool = False,
    profile: str = "",
    source: str = "",
) -> None:
    """Put several servers behind one endpoint: llama-swap, LiteLLM or nginx."""
    typed, cli = dict(locals()), _cli(locals())
    words = (kind, server, model, typed)
    _do(
        lambda console: _serving().serve_router(console, *words, output=output, **cli),
        json,
    )


def _cli(given: dict[str, Any]) -> dict[str, str]:
    """Return what says which checkout a task is about."""
    return {name: given[name] for name in ("profile", "source")}


def _serving() -> Any:
    """Import what tasks about servers do; listing tasks imports nothing."""
    from tools.rig.steps import serving

    return serving


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
    capacity,
    serve_tp2,
    serve_status,
    serve_stop,
    serve_logs,
    serve_unit,
    serve_router,
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
