# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tasks for a failure: its cause, and what to hand to others."""

from __future__ import annotations

from invoke.context import Context

from tools.rig.tasks.frame import described, do, task


@task(
    iterable=["log"],
    help=described(
        "json",
        log="a log, or - for standard input (default: the last failed build's)",
        lang="en or zh (default: the locale's)",
    ),
)
def diagnose(c: Context, log: list[str], lang: str = "", json: bool = False) -> None:
    """Name the root cause in build and server logs: diagnose [LOG...|-]."""
    from tools.rig.steps import commands

    do(lambda console: commands.diagnose(console, log, lang), json)


@task(
    help=described(
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

    do(
        lambda console: commands.bundle(
            console, output, show, profile=profile, source=source
        ),
        json,
    )
