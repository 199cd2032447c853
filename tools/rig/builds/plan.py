# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The plan of a build: a pure function of facts, profile and options.

``invoke plan`` prints it, ``invoke build-sm70`` executes it, and both call
:func:`make`: what is printed and what is done cannot drift apart.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.rig.base import redact
from tools.rig.base.console import duration, size
from tools.rig.builds.compile_setup import CompileSetup
from tools.rig.builds.environment import Composed, Places
from tools.rig.builds.profile import Profile


@dataclass(frozen=True)
class Command:
    """One program that the build will start.

    ``{wheel}``, ``{hollow_wheel}`` and ``{requirements}`` stand for what an earlier
    command makes.
    ``env`` is added to the build's environment for this command alone.
    """

    title: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    compiles: bool = False

    def text(self) -> str:
        """Return the command as one types it, secrets masked."""
        return shlex.join(redact.argv(self.argv))

    def filled(self, **made: str) -> Command:
        """Return the command with what earlier commands made in the open places."""

        def fill(text: str) -> str:
            for name, value in made.items():
                text = text.replace("{" + name + "}", value)
            return text

        argv = tuple(fill(word) for word in self.argv)
        env = {name: fill(value) for name, value in self.env.items()}
        return replace(self, argv=argv, env=env)


@dataclass(frozen=True)
class BuildPlan:
    """Everything that a build will do."""

    profile: str
    mode: str
    places: Places
    toolchain: str
    setup: CompileSetup
    env: Mapping[str, str]
    commands: tuple[Command, ...]
    wheels: Path
    notes: tuple[str, ...]

    def command(self, title: str) -> Command:
        """Return the command of that title."""
        return next(c for c in self.commands if c.title == title)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, secrets masked."""
        return {
            "profile": self.profile,
            "mode": self.mode,
            "checkout": str(self.places.checkout),
            "environment": str(self.places.home),
            "generation": str(self.places.generation),
            "toolchain": self.toolchain,
            "jobs": self.setup.jobs.ninja,
            "compiles_at_once": self.setup.jobs.cap,
            "jobs_why": self.setup.jobs.why,
            "budget_bytes": self.setup.machine.budget,
            "expected_s": self.setup.expected_s,
            "compile_cache": self.setup.cache.name,
            "build_folder": str(self.setup.work.home),
            "env": redact.env(dict(self.env)),
            "commands": [
                {
                    "title": c.title,
                    "argv": redact.argv(c.argv),
                    "env": redact.env(dict(c.env)),
                }
                for c in self.commands
            ],
            "notes": list(self.notes),
        }

    def _expected(self) -> str:
        setup = self.setup
        if setup.expected_s is None:
            return "nothing was measured yet"
        took = duration(setup.expected_s)
        return f"{took} for all {setup.known} compiles that were measured, uncached"

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        out = [
            f"profile      {self.profile}",
            f"source       {self.places.checkout}",
            f"environment  {self.places.home}",
            f"generation   {self.places.generation}",
            f"toolchain    {self.toolchain}",
            f"build folder {self.setup.work.home}",
            f"cache        {self.setup.cache.name or 'none'}",
            f"compiles     {self.setup.jobs.why}",
            f"memory       {size(self.setup.machine.budget)} free for compiles now",
            f"expected     {self._expected()}",
            "environment variables added:",
        ]
        masked = redact.env(dict(self.env))
        out += [f"  {name}={masked[name]}" for name in sorted(masked)]
        out.append("commands:")
        for command in self.commands:
            out.append(f"  # {command.title}")
            extra = [f"{k}={v}" for k, v in sorted(redact.env(command.env).items())]
            out.append("  " + " ".join([*extra, command.text()]))
        out += [f"note: {note}" for note in self.notes]
        return out


CONFIG, STORED = "DIST_EXTRA_CONFIG", "stored.cfg"
"""Setuptools' variable for one more configuration file, and the name of ours."""

NOT_PACKED = "[bdist_wheel]\ncompression = stored\n"
"""Content of that file. The wheel stays on this disk; to pack the fork's takes 13 s of
a processor each time (docs/rig/measured.md), and unpacking slows the way back."""

BUILD_NEEDS, WHEEL, NEEDS = "build requirements", "wheel", "run-time requirements"
EDITABLE, INSTALL = "editable install", "install the wheel"
"""Titles of the commands."""


def make(
    profile: Profile,
    places: Places,
    composed: Composed,
    setup: CompileSetup,
    toolchain: str,
    wheels: Path,
    uv: tuple[str, ...],
    *,
    torch_backend: str | None,
    wheel_only: bool,
    notes: tuple[str, ...] = (),
) -> BuildPlan:
    """Return the plan.

    Parameters
    ----------
    profile, places, composed, setup
        What is built, where, with which environment, and how compiles are run.
    toolchain
        One line that names toolkit and compiler.
    wheels
        Where the built wheel goes.
    uv
        The command that runs uv.
    torch_backend
        uv's ``--torch-backend``, or None for the index that the user has set up.
    wheel_only
        Install the wheel itself, instead of an editable overlay of the checkout.
    notes
        Work-rounds in force, for the summary.
    """

    def pip(environment: Path, *words: str) -> tuple[str, ...]:
        python = str(environment / "bin" / "python")
        return (*uv, "pip", "install", "--python", python, *words)

    bench, new = places.bench, places.generation
    backend = ("--torch-backend", torch_backend) if torch_backend else ()
    constraint = ("--constraint", str(wheels / "constraints.txt"))
    held = (*backend, *constraint)
    reqs = ("--requirement", str(places.checkout / profile.build_requirements))
    plain = ("--no-build-isolation", "--python", str(bench / "bin" / "python"))
    out = ("--out-dir", str(wheels), str(places.checkout))
    needs = ("--requirement", "{requirements}")
    commands = [
        Command(BUILD_NEEDS, pip(bench, *held, *reqs), {}),
        Command(WHEEL, (*uv, "build", "--wheel", *plain, *out), {}, compiles=True),
    ]
    if wheel_only:
        whole = ("--no-deps", "{wheel}")
        commands.append(Command(NEEDS, pip(new, *held, *needs), {}))
        commands.append(Command(INSTALL, pip(new, *whole), {}))
    else:
        # its own setup.py runs there, and wants what a build wants
        commands.append(Command(NEEDS, pip(new, *held, *reqs, *needs), {}))
        words = ("--no-build-isolation", "--no-deps", "--editable")
        argv = pip(new, *words, location(places.checkout))
        commands.append(Command(EDITABLE, argv, dict(profile.editable_env)))
    return BuildPlan(
        profile.name,
        "wheel" if wheel_only else "editable",
        places,
        toolchain,
        setup,
        composed.add,
        tuple(commands),
        wheels,
        (*notes, *composed.notes),
    )


def location(path: Path) -> str:
    """Return how uv is told to install from a path: it reads some signs as its own."""
    plain = all(c.isalnum() or c in "/_-.+=, '" for c in os.fspath(path))
    return os.fspath(path) if plain else path.as_uri()


def constraints(profile: Profile) -> str:
    """Return the constraints file that holds torch at the profile's version."""
    return f"torch=={profile.torch}\n" if profile.torch else ""
