# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A made-up user's home and checkout for ``venv-local``, with real uv and Python."""

from __future__ import annotations

import functools
import io
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.support import slowfs
from tools.rig.base.config import resolve
from tools.rig.base.console import Console
from tools.rig.base.state import write_json
from tools.rig.builds import place, survey
from tools.rig.builds import profile as profiles
from tools.rig.host import pythons, storage
from tools.rig.steps import venv
from tools.rig.steps.scene import Scene

MIB = 1 << 20
needs_fuse = pytest.mark.skipif(
    bool(slowfs.unavailable()), reason=f"no FUSE: {slowfs.unavailable()}"
)


@functools.cache
def python() -> pythons.Python:
    """Return a Python of this machine that environments can be made with."""

    def enough(found: pythons.Python) -> bool:
        return pythons.choose([found], "3.12", ">=3.10") is not None

    found = [p for p in pythons.find(os.environ, enough=enough) if enough(p)]
    if not found:
        pytest.skip("no Python >= 3.10 besides this one")
    return found[0]


@dataclass
class Stage:
    """A home, a checkout and a console of a made-up user."""

    tmp: Path
    checkout: Path
    env: dict[str, str]
    python: Path
    out: io.StringIO

    def run(
        self, checkout: Path | None = None, need: int = 64 * MIB, **cli: object
    ) -> venv.VenvResult:
        """Run the whole step, with so many bytes wanted."""
        settings = resolve({"python": str(self.python), **cli}, self.env)
        facts = survey.facts(settings, checkout or self.checkout, env=self.env)
        planned = place.plan(facts, need)
        console = Console(self.out, self.env)
        for line in planned.lines():
            console.say(line)
        found = Scene(
            settings=settings,
            env=self.env,
            profile=profiles.load("sample"),
            checkout=facts.checkout.real,
            is_sample=False,
            root=planned.root,
            environment=planned.environment,
            deps=planned.deps,
            placing=planned,
            mirrors={},
        )
        return venv.guarded(console, found)

    def remember(self, root: Path) -> None:
        """Let `root` be the one that the user named at some time before."""
        memory = survey.remembered_file(self.env)
        write_json(memory, {"root": str(root), "chosen": True})

    @property
    def said(self) -> str:
        """What people were told."""
        return self.out.getvalue()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Set up a home and a checkout with names that are hard to quote."""
    if storage.kind(storage.mount_of(tmp_path).fs) in ("memory", "network"):
        pytest.skip("the folder for temporary files is not on a local disk")
    checkout = tmp_path / 'it\'s a "räk-kärra" $HOME'
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.10"\n')
    home = tmp_path / "hem måne"
    home.mkdir()
    env = {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "UV_OFFLINE": "1",
    }
    return Stage(tmp_path, checkout, env, python().path, io.StringIO())


def works(environment: Path) -> bool:
    """Ask the environment's Python where it lives."""
    code = "import sys; print(sys.prefix)"
    got = subprocess.run(
        [environment / "bin" / "python", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    return got.returncode == 0 and Path(got.stdout.strip()) == environment
