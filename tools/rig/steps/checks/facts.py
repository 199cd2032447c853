# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the checks know about the machine: each fact read once, when first asked for.

Checks run at the same time in threads and share probes: the check that lists toolkits
and the one that judges them wait for the same answer. Tests replace :class:`Probes`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from tools.rig.base.config import Settings
from tools.rig.base.state import StateRoot
from tools.rig.builds import place as places
from tools.rig.builds import sample
from tools.rig.builds.pair import PairPlan, choose, user_set
from tools.rig.builds.place import PlaceFacts, PlacePlan
from tools.rig.builds.private_apt import archive_owner
from tools.rig.builds.profile import Profile
from tools.rig.builds.toolkit_kit import Recipe
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.host.gpu import Gpus
from tools.rig.host.look import Disk
from tools.rig.host.memory import Cores, Memory
from tools.rig.host.pci import PciCard
from tools.rig.host.programs import Program
from tools.rig.host.system import Distribution, Module
from tools.rig.steps.checks.absent import below_root, checkout_below
from tools.rig.steps.checks.probes import Probes, Question

T = TypeVar("T")
GIB = 1 << 30


@dataclass
class Facts:
    """The machine as the checks see it.

    Parameters
    ----------
    profile
        What is to be built.
    settings
        The resolved settings.
    env
        The environment that a build would start from.
    source
        The checkout to build.
    absent
        Whether that is not here. `source` is then the folder that the suite lies in,
        which a build neither writes to nor minds the owner of.
    root
        The folder for everything the suite makes, when it is chosen already.
    probes
        How the machine is read.
    """

    profile: Profile
    settings: Settings
    env: Mapping[str, str]
    source: Path
    absent: bool = False
    root: StateRoot | None = None
    probes: Probes = field(default_factory=Probes)

    def __post_init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._known: dict[str, tuple[Any, BaseException | None]] = {}

    @property
    def distribution(self) -> Distribution:
        """The distribution, after os-release."""
        return self._once("distribution", self.probes.distribution)

    @property
    def glibc(self) -> str:
        """Version of the C library that a compiler meets; empty when unknown."""
        return self._once(
            "glibc", lambda: self.probes.glibc_headers() or self.probes.glibc()
        )

    @property
    def state(self) -> StateRoot | None:
        """The folder for everything the suite makes, when one was chosen before."""
        return self.root or self._once("state", self._find_state)

    @property
    def toolkits(self) -> list[Toolkit]:
        """Every CUDA toolkit, those that the suite brought included."""
        folder = self.state.toolkits if self.state else None
        return self._once("toolkits", lambda: self.probes.toolkits(self.env, folder))

    @property
    def compilers(self) -> list[HostCompiler]:
        """Every host compiler, those that the suite brought included."""
        return self._once("compilers", self._find_compilers)

    @property
    def recipes(self) -> list[Recipe]:
        """What could be brought here; nothing when offline or without apt."""
        return self._once("recipes", self._find_recipes, timed=False)

    @property
    def pair(self) -> PairPlan:
        """Toolkit and compiler that a build would use, exactly as the build chooses."""
        return self._once("pair", self._choose_pair, timed=False)

    @property
    def release(self) -> str:
        """CUDA release that a build would use, like ``12.4``; empty for none."""
        plan = self.pair
        if plan.toolkit:
            return plan.toolkit.release
        return plan.recipe.release if plan.recipe else ""

    @property
    def gpus(self) -> Gpus:
        """Driver and cards, through NVML."""
        return self._once("gpus", self.probes.gpus)

    @property
    def pci_cards(self) -> list[PciCard]:
        """NVIDIA cards on the bus, driver or not."""
        return self._once("pci", self.probes.pci_cards)

    @property
    def module(self) -> Module | None:
        """The loaded NVIDIA kernel module."""
        return self._once("module", self.probes.module)

    @property
    def memory(self) -> Memory:
        """Memory of the machine and of this process's cgroup."""
        return self._once("memory", self.probes.memory)

    @property
    def cores(self) -> Cores:
        """Processors that this process may use."""
        return self._once("cores", self.probes.cores)

    @property
    def disks(self) -> PlaceFacts:
        """Checkout and candidate disks; measuring them takes a second or two."""
        return self._once("disks", self._look_at_disks)

    @property
    def survey(self) -> PlaceFacts:
        """Disks, checkout and Pythons: all that the choice of a place rests on."""
        pythons = self._once("pythons", lambda: self.probes.pythons(self._question))
        return replace(self.disks, pythons=pythons.pythons)

    @property
    def place(self) -> PlacePlan:
        """Where the environment would go, exactly as the build chooses."""
        return self._once(
            "place", lambda: places.plan(self.survey, self._need), timed=False
        )

    @property
    def environment(self) -> Path | None:
        """The Python environment of the checkout; it need not exist."""
        if not self.absent:
            return self.source / ".venv"
        if not (self.is_sample and self.state):
            return None
        return checkout_below(self.state.path) / ".venv"

    @property
    def is_sample(self) -> bool:
        """Whether the bundled miniature is to be built."""
        return self.profile.project == sample.PROJECT

    @property
    def temp(self) -> Path:
        """Where a compiler puts its temporary files as things stand."""
        return Path(self.env.get("TMPDIR") or "/tmp")

    def program(self, name: str) -> Program | None:
        """Return a program of this name and its version, None when there is none."""
        probe = partial(self.probes.program, name, self.env)
        return self._once(f"program {name}", probe)

    def disk(self, path: Path) -> Disk:
        """Return what is known about the disk that holds `path`."""
        return self._once(f"disk {path}", partial(self.probes.disk, path))

    def text(self, name: str) -> str:
        """Return the text of a file of the checkout; empty where it cannot be read."""
        if self.absent and not self.is_sample:
            return ""
        folder = sample.TEMPLATES / "project" if self.absent else self.source
        path = folder / name
        probe = partial(self.probes.text, path)
        return self._once(f"text {path}", probe)[0] or ""

    @property
    def _question(self) -> Question:
        return Question(
            self.settings,
            self.source,
            self.profile.python,
            self.env,
            # torch's extensions include Python.h; the sample does without
            need_headers=self.profile.torch is not None,
        )

    @property
    def _need(self) -> int:
        return self.profile.need_gib * GIB

    def _look_at_disks(self) -> PlaceFacts:
        seen = self.probes.disks(self._question)
        if not self.absent:
            return seen
        return below_root(
            seen, self._need, self._look_below if self.is_sample else None
        )

    def _look_below(self, checkout: Path, root: Path) -> PlaceFacts:
        values = {**self.settings.values, "local_root": root}
        settings = replace(self.settings, values=values)
        return self.probes.disks(
            replace(self._question, checkout=checkout, settings=settings)
        )

    def _find_state(self) -> StateRoot | None:
        if self.settings.local_root:
            return StateRoot(self.settings.local_root)
        before = self.probes.chosen_root(self.env)
        return StateRoot(before) if before else None

    def _find_compilers(self) -> list[HostCompiler]:
        found = list(self.probes.compilers(self.env))
        if self.state:
            found += self.probes.brought(self.state.toolkits)
        return found

    def _find_recipes(self) -> list[Recipe]:
        if self.settings.offline or not self.probes.have_dpkg():
            return []
        owner = archive_owner(self.distribution)
        return self.probes.recipes(owner, self.profile.toolkit_parts)

    def _choose_pair(self) -> PairPlan:
        return choose(
            self.toolkits,
            self.compilers,
            self.profile,
            self.recipes,
            set_by_user=user_set(self.env),
        )

    def _once(self, name: str, probe: Callable[[], T], *, timed: bool = True) -> T:
        """Run a probe on the first question and give every later one the same answer.

        A probe that failed fails again for each who asks, with the same error. What
        only combines other facts is not `timed`: it would count the time that it waits.
        """
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._known:
                start = time.monotonic()
                try:
                    self._known[name] = (probe(), None)
                # kept, so that every check that needs this fact becomes unknown
                except Exception as exc:
                    self._known[name] = (None, exc)
                if timed:
                    self.seconds[name] = time.monotonic() - start
        value, error = self._known[name]
        if error is not None:
            raise error
        return cast(T, value)
