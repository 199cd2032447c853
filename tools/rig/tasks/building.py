# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tasks that build, prove, switch and look back."""

from __future__ import annotations

from invoke.context import Context

from tools.rig.tasks.frame import described, do, task


@task(
    name="build-sm70",
    help=described(
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

    do(
        lambda console: commands.build(
            console, wheel, when_free, profile=profile, source=source, jobs=jobs
        ),
        json,
    )


@task(name="in-use", help=described("json", "source"))
def in_use(c: Context, json: bool = False, source: str = "") -> None:
    """Say who runs from the environment; exit 4 when someone does."""
    from tools.rig.steps import commands

    do(lambda console: commands.in_use(console, source=source), json)


@task(help=described("json", "profile", "source"))
def verify(c: Context, json: bool = False, profile: str = "", source: str = "") -> None:
    """Prove that every CUDA library holds code for the card, and that it imports."""
    from tools.rig.steps import commands

    do(lambda console: commands.verify(console, profile=profile, source=source), json)


@task(
    name="install-wheel",
    help=described("json", "profile", "source", "when_free", wheel="the file"),
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

    do(
        lambda console: commands.install_wheel(
            console, wheel, when_free, profile=profile, source=source
        ),
        json,
    )


@task(help=described("json", source="checkout whose builds to list (default: all)"))
def builds(c: Context, json: bool = False, source: str = "") -> None:
    """List builds, newest first: which is in force, which is kept, who uses it."""
    from tools.rig.steps import commands

    do(lambda console: commands.builds(console, source=source), json)


@task(
    help=described(
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
    do(
        lambda console: commands.activate(
            console, commands.named(build), *words, profile=profile, source=source
        ),
        json,
    )


@task(help=described("json", "profile", "source", "when_free", "any_commit"))
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
    do(
        lambda console: commands.activate(
            console, *words, profile=profile, source=source
        ),
        json,
    )


@task(
    help=described(
        "json",
        build="id of the build, or its start (default: the newest that compiled)",
        output="file or folder to write (default: reports/ in the state root)",
    )
)
def report(c: Context, build: str = "", output: str = "", json: bool = False) -> None:
    """Write one HTML page about a build: timeline, memory, what was slow."""
    from tools.rig.steps import commands

    do(lambda console: commands.report(console, build, output), json)
