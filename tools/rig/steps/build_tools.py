# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a build asks and starts, by name; tests put fakes here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.rig.base import run
from tools.rig.builds import cache_server, carried, generations, settle, survey, uv
from tools.rig.builds.admission.client import Admission
from tools.rig.guard import gate
from tools.rig.host import git
from tools.rig.host import look as looks
from tools.rig.steps import git_safe, install_wheel, toolkit, verify


@dataclass(frozen=True)
class Tools:
    """The parts of a build that read the machine or start programs."""

    need_git: Callable[..., str] = git_safe.need_git
    guard: Callable[..., Any] = gate.guard
    look: Callable[..., Any] = gate.look_at
    make_environment: Callable[..., Any] = settle.act
    make_venv: Callable[..., str] = settle.make
    make_link: Callable[..., str] = looks.make_link
    inspect: Callable[..., tuple[str, str]] = survey.inspect
    finish: Callable[..., Any] = generations.finish
    plan_pair: Callable[..., Any] = toolkit.plan
    act_pair: Callable[..., Any] = toolkit.act
    git_safe: Callable[..., Any] = git_safe.git_safe
    describe: Callable[..., str] = git.describe
    head: Callable[..., str] = git.head
    tracked: Callable[..., Any] = git.tracked
    install: Callable[..., None] = uv.install
    packages: Callable[..., Any] = carried.packages
    stream: Callable[..., run.Result] = run.stream
    admission: Callable[..., Admission] = Admission
    serving: Callable[..., Any] = cache_server.serving
    verify: Callable[..., Any] = verify.verify
    need_fit: Callable[..., None] = install_wheel.need_fit
    install_wheel: Callable[..., Any] = install_wheel.install_wheel
