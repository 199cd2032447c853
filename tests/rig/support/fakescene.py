# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A stage for a build, and programs that only play their part on it."""

from __future__ import annotations

import contextlib
import functools
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.rig.support import fakemachine
from tools.rig.base.config import resolve
from tools.rig.base.errors import StepFailed
from tools.rig.base.run import Result
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import generations, place, profile
from tools.rig.builds.admission.client import Admission
from tools.rig.builds.cache_server import Served
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.files import Files
from tools.rig.builds.pair import PairPlan
from tools.rig.builds.place import Environment, PlacePlan
from tools.rig.builds.verdicts import ImportVerdict, LibraryVerdict, VerifyReport
from tools.rig.guard.scan import ScanResult, User
from tools.rig.host.look import Checkout, Link
from tools.rig.steps.build_tools import Tools
from tools.rig.steps.git_safe import GitSafeResult
from tools.rig.steps.scene import Scene
from tools.rig.steps.shim import ShimResult
from tools.rig.steps.toolkit import Pair

SAMPLE = profile.load("sample")
KIT = fakemachine.toolkit()
GXX = fakemachine.compiler()
NO_SHIM = ShimResult(False, None, (), {}, "not needed")

METADATA = """\
Metadata-Version: 2.1
Name: rig-sample
Version: 0.1.0
Requires-Dist: typing-extensions>=4.6
"""


def chosen(**changes: Any) -> PairPlan:
    """Return the choice of a toolkit and a compiler that are both here."""
    values = {"toolkit": KIT, "recipe": None, "compiler": GXX, "compiler_max": 13}
    return PairPlan(**{**values, "reasons": (), "problem": "", "hint": "", **changes})


def placing(folder: Path, **changes: Any) -> PlacePlan:
    """Return the plan of a place below `folder`; `changes` are those of the survey."""
    checkout = folder / "checkout"
    root = folder / "root"
    seen = Checkout(
        checkout, checkout, "checkout-1", fakemachine.UID, True, Link("absent")
    )
    there = Candidate(root, "chosen before", fakemachine.disk(root))
    values = {"checkout": seen, "candidates": (there,), **changes}
    return place.plan(fakemachine.survey(**values), 0)


def scene(
    folder: Path, *, survey: Mapping[str, Any] | None = None, **cli: Any
) -> Scene:
    """Return a scene below `folder`: a checkout, a state root, an environment."""
    where = placing(folder, **(survey or {}))
    (folder / "checkout").mkdir(exist_ok=True)
    return Scene(
        settings=resolve(cli, {}),
        env={"PATH": "/usr/bin", "HOME": "/home/me", "PYTHONPATH": "/mine"},
        profile=SAMPLE,
        checkout=where.facts.checkout.real,
        is_sample=False,
        root=StateRoot(where.root.path),
        environment=where.environment,
        deps=where.deps,
        placing=where,
        mirrors={},
    )


def report(verdict: str = "ok", imported: str = "ok") -> VerifyReport:
    """Return what ``verify`` found."""
    library = LibraryVerdict("rig_sample/_C.abi3.so", "", 9, (70,), 1, (), verdict)
    host = LibraryVerdict(
        "rig_sample/_host.abi3.so", "", 9, (), 0, (), "no device code"
    )
    module = ImportVerdict("rig_sample", imported, "", "it fails")
    return VerifyReport("the place", "sample", (70,), (library, host), (module,))


class _NoFlush(Files):
    """Files that need not outlast a power cut."""

    def flush_all(self, folder: Path) -> None:
        """Do nothing: the whole disk of a busy machine takes seconds."""


class Stage:
    """Fakes for every part of a build, and what was asked of them, in order.

    Attributes change the play: ``compiles`` is the status of the compile, ``says`` what
    it prints, ``verdicts`` the verdicts of each look, ``breaks`` the part that fails.
    """

    def __init__(self, at: Scene) -> None:
        self.at = at
        self.calls: list[tuple[str, Any]] = []
        self.compiles = 0
        self.says = ["[1/2] Building CXX object a.o", "[2/2] Linking CXX x.so"]
        self.content = ""
        self.head = "c0ffee"
        self.packages: dict[str, dict[str, str]] = {}
        self.verdicts = ["ok", "ok"] * 2
        self.chosen = chosen()
        self.pair_notes: tuple[str, ...] = ()
        self.safe = GitSafeResult(False, {"GIT_X": "1"}, "accepts it", ())
        self.made_notes: tuple[str, ...] = ()
        self.users: tuple[User, ...] = ()
        self.state = "ready"
        self.python = "3.12.4"
        self.breaks = ""
        self.error: BaseException = StepFailed("broken")

    @property
    def tools(self) -> Tools:
        """Return the fakes."""
        return Tools(
            need_git=lambda env: self._did("git", "2.39"),
            guard=self._guard,
            look=lambda targets: ScanResult(),
            make_environment=self._environment,
            make_venv=self._venv,
            make_link=lambda *names: self._did("link", "", names),
            inspect=lambda folder: (self.state, "3.12.4"),
            finish=functools.partial(generations.finish, files=_NoFlush()),
            plan_pair=lambda *args: self._did("plan pair", self.chosen),
            act_pair=self._pair,
            git_safe=lambda *args: self._did("trust", self.safe),
            describe=lambda checkout, env: "v0.1.0",
            head=lambda checkout, env: self.head,
            tracked=lambda checkout, env: ["rig_sample/__init__.py"],
            install=self._install,
            packages=lambda uv, python, env: self.packages.get(
                python.parent.parent.name, {}
            ),
            stream=self._stream,
            admission=self._admission,
            serving=lambda *args, **how: contextlib.nullcontext(Served()),
            verify=self._verify,
            need_fit=lambda *args: self._did("fit", None),
            install_wheel=self._install_wheel,
        )

    def named(self, name: str) -> list[Any]:
        """Return the details of all calls of a part."""
        return [detail for called, detail in self.calls if called == name]

    def _did(self, name: str, answer: Any, detail: Any = None) -> Any:
        self.calls.append((name, detail))
        if name == self.breaks:
            raise self.error
        return answer

    def _guard(
        self, console: Any, venv: Path, checkout: Path, **how: Any
    ) -> ScanResult:
        seen = ScanResult(users=self.users)
        answer: ScanResult = self._did("guard", seen, (venv, checkout, how["force"]))
        return answer

    def _environment(self, plan: PlacePlan, console: Any, *, env: Any) -> Environment:
        _site(plan.bench)
        if not plan.environment.exists():
            plan.root.make(plan.root.venvs)
            plan.environment.symlink_to(plan.bench)
        python = plan.environment / "bin" / "python"
        notes = (*plan.notes, *self.made_notes)
        made = Environment(
            plan.root,
            plan.environment,
            python,
            self.python,
            None,
            notes,
            plan.deps,
            plan.bench,
        )
        answer: Environment = self._did("environment", made)
        return answer

    def _venv(self, plan: PlacePlan, folder: Path, python: Path, env: Any) -> str:
        _site(folder)
        (folder / SENTINEL).touch()
        answer: str = self._did("venv", "3.12.4", (folder, python))
        return answer

    def _pair(self, *args: Any) -> Pair:
        chain = {"CUDA_HOME": str(KIT.root), "PATH": f"{KIT.root}/bin:/usr/bin"}
        pair = Pair(KIT, GXX, NO_SHIM, chain, self.pair_notes)
        answer: Pair = self._did("pair", pair)
        return answer

    def _install(self, uv: Path, python: Path, words: Any, **how: Any) -> None:
        self._did("install", None, (list(words), how["env"]))

    def _stream(
        self, argv: Any, *, on_line: Any, log: Path, env: Any, **how: Any
    ) -> Any:
        self._did("compile", None, (list(argv), dict(env), how))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as sink:
            for line in self.says:
                sink.write(line + "\n")
                on_line(line)
        how["on_start"](os.getpid())
        if self.compiles == 0:
            out = Path(argv[argv.index("--out-dir") + 1])
            make_wheel(out, self.content)
        return Result(tuple(argv), self.compiles, "", "", 1.0)

    def _admission(self, *args: Any) -> Admission:
        """Return one whose service ends at once."""
        none = Result((), 0, "", "", 0.0)
        folder = self.at.root.path / "socket"
        return Admission(*args, folder=folder, start=lambda *a, **how: none)

    def _verify(self, console: Any, **what: Any) -> VerifyReport:
        verdict = self.verdicts[len(self.named("verify"))]
        answer: VerifyReport = self._did("verify", report(verdict), what)
        return answer

    def _install_wheel(self, console: Any, wheel: Path, **how: Any) -> Any:
        from tools.rig.steps.install_wheel import InstallResult

        found = InstallResult(str(wheel), "rig-sample", "0.1.0", report(), report())
        return self._did("install wheel", found, (wheel, how))


def _site(environment: Path) -> None:
    site = environment / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)


def make_wheel(folder: Path, content: str = "") -> Path:
    """Write a wheel of the sample: one file of its own, two libraries."""
    made = folder / "rig_sample-0.1.0-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name in ("__init__.py", "_C.abi3.so", "_host.abi3.so"):
            archive.writestr(f"rig_sample/{name}", f"new {name}{content}")
        archive.writestr("rig_sample-0.1.0.dist-info/METADATA", METADATA)
    return made


def slow_checkout() -> dict[str, Any]:
    """Return changes to a survey: the checkout lies on a NAS."""
    nas = replace(
        fakemachine.disk(rates=fakemachine.NAS),
        mount=fakemachine.mount("nfs4", "/nas", "nas:/x", "0:50"),
    )
    return {"checkout_disk": nas}
