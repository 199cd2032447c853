# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tasks that look at a machine and make it ready for a build."""

from __future__ import annotations

from invoke.context import Context

from tools.rig.tasks.frame import described, do, task


@task(
    iterable=["only"],
    help=described(
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

    do(
        lambda console: commands.doctor(
            console, only, list_, compare, profile=profile, source=source
        ),
        json,
    )


@task(name="cuda-toolkit", help=described("json", "profile", "source"))
def cuda_toolkit(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Find or bring a CUDA toolkit and host compiler that fit the profile."""
    from tools.rig.steps import commands

    do(lambda console: commands.toolkit(console, profile=profile, source=source), json)


@task(name="shim-glibc", help=described("json", "profile", "source"))
def shim_glibc(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Probe nvcc against this system's math headers; shadow them where they clash."""
    from tools.rig.steps import commands

    do(lambda console: commands.shim(console, profile=profile, source=source), json)


@task(name="git-safe", help=described("json", "source"))
def git_safe(c: Context, json: bool = False, source: str = "") -> None:
    """Let git work on a checkout that another user owns, for our processes only."""
    from tools.rig.steps import commands

    do(lambda console: commands.git_safe(console, source=source), json)


@task(name="venv-local", help=described("json", "profile", "source"))
def venv_local(
    c: Context, json: bool = False, profile: str = "", source: str = ""
) -> None:
    """Put the environment on a fast local disk and link .venv to it."""
    from tools.rig.steps import commands

    do(lambda console: commands.venv(console, profile=profile, source=source), json)


@task(help=described("json", "profile", "source", "jobs", wheel="plan a wheel build"))
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

    do(
        lambda console: commands.plan(
            console, wheel, profile=profile, source=source, jobs=jobs
        ),
        json,
    )
