# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A world of files with a fake uv, in which the plan of a place is carried out."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.candidates import PY312
from tests.rig.support.places import MOUNT
from tools.rig.base import run
from tools.rig.base.console import Console
from tools.rig.builds import place, settle, survey
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import Environment, PlaceFacts, PlacePlan
from tools.rig.host import pythons
from tools.rig.host.look import Checkout, Disk, Link
from tools.rig.host.storage import Rates


class Fake:
    """A world with a fake uv on the path; everything else is files below `tmp`."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.bin = tmp / "bin"
        self.bin.mkdir()
        (self.bin / "uv").touch(mode=0o755)
        self.checkout = tmp / "src"
        self.checkout.mkdir()
        self.root = tmp / "root"
        self.out = io.StringIO()
        self.argvs: list[list[str]] = []
        self.works = True
        self.brings = ""
        self.brought = PY312
        self.links: list[tuple[Path, Path]] = []

    def plan(self, **more: Any) -> PlacePlan:
        """Return a plan for this world; `more` changes the facts."""
        root = more.pop("root", self.root)
        chosen = more.pop("chosen", False)
        link = more.pop("link", Link("absent"))
        path, place_name = self.checkout, "src-0a1b2c3d"
        writable = more.pop("writable", True)
        environment = root / "venvs" / place_name
        venv_state = survey.inspect(environment, self.ask)
        disk = Disk(
            root, root, MOUNT, writable=True, rates=Rates(9e3, 9e3, 9e3, 9e3, 0.1, 1)
        )
        facts = PlaceFacts(
            checkout=Checkout(path, path, place_name, os.getuid(), writable, link),
            checkout_disk=disk,
            candidates=(
                Candidate(Path("/nas"), "test", replace(disk, writable=False), True),
                Candidate(root, "test", disk, chosen, *venv_state),
            ),
            uid=os.getuid(),
            pythons=(PY312,),
            wanted="3.12",
            remembered_in=self.tmp / "home" / "root.json",
            remembered=more.pop("remembered", None),
        )
        return place.plan(replace(facts, **more), 0)

    def ask(self, argv: list[Any], **how: Any) -> run.Result:
        """Stand for `run.run`: uv makes folders, its Pythons answer."""
        args = [str(a) for a in argv]
        if args[1] == "venv":
            self.argvs.append(args)
            made = Path(args[-1])
            (made / "bin").mkdir(parents=True)
            (made / "bin" / "python").touch()
            (made / "pyvenv.cfg").touch()
            return run.Result((), 0, "", "", 0.1)
        if args[1:3] == ["python", "find"]:
            return run.Result((), 0, self.brings, "", 0.1)
        if args[-1] == pythons._ASK:
            problem = self.brought.problem
            said = {
                "version": self.brought.version,
                "base": args[0],
                "implementation": "pypy" if problem else "cpython",
                "free_threaded": False,
                "wide": True,
                "headers": self.brought.headers,
            }
            return run.Result((), 0, json.dumps(said), "", 0.1)
        there = Path(args[0]).exists() and self.works
        return run.Result((), 0 if there else 1, "3 12 3 final 0", "", 0.1)

    def stream(self, argv: list[str], *, on_line: Any, **how: Any) -> run.Result:
        """Stand for `run.stream`: uv brings a Python, or not."""
        self.argvs.append(argv)
        if self.brings:
            return run.Result((), 0, "", "", 0.1)
        on_line("error: x")
        on_line("cause: dns error")
        return run.Result((), 1, "", "", 0.1)

    def act(
        self,
        plan: PlacePlan,
        problem: str = "",
        before_moving: Callable[[], object] | None = None,
        relink: bool = False,
    ) -> Environment:
        """Act in this world."""

        def make_link(link: Path, target: Path, instead: str) -> str:
            self.links.append((link, target))
            return problem

        return settle.act(
            plan,
            Console(self.out, {}),
            env={"PATH": str(self.bin)},
            ask=self.ask,
            stream=self.stream,
            make_link=make_link,
            before_moving=before_moving,
            relink=relink,
        )


@pytest.fixture(autouse=True)
def no_uv_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fake uv on the path, never the one beside this interpreter."""
    real = settle.uv.program
    monkeypatch.setattr(settle.uv, "program", lambda env: real(env, "/none/python"))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Return a fresh world."""
    return Fake(tmp_path)
