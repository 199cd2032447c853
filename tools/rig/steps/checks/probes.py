# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How the doctor reads the machine: one function a fact, each replaceable by a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.rig.base.config import Settings
from tools.rig.base.run import run
from tools.rig.builds import apt_sources
from tools.rig.builds import survey as surveys
from tools.rig.builds.compiler_kit import brought
from tools.rig.builds.place import PlaceFacts
from tools.rig.builds.private_apt import have_dpkg
from tools.rig.builds.survey import Seams
from tools.rig.builds.toolkit_kit import Recipe, recipes
from tools.rig.host import compilers as host_compilers
from tools.rig.host import cuda, gpu, loader, look, pci, programs, reach, system
from tools.rig.host import memory as host_memory
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.host.gpu import Gpus
from tools.rig.host.loader import Cudnn
from tools.rig.host.look import Disk
from tools.rig.host.memory import Cores, Memory
from tools.rig.host.mounts import Mount
from tools.rig.host.pci import PciCard
from tools.rig.host.programs import Program
from tools.rig.host.system import Distribution, Module

Environ = Mapping[str, str]

MEASURE_S = 0.2
"""Seconds of measuring on each disk; the checkout's gets twice as much."""


@dataclass(frozen=True)
class Question:
    """What a survey is asked: see :func:`tools.rig.builds.survey.facts`."""

    settings: Settings
    checkout: Path
    python: str
    env: Environ
    need_headers: bool = True

    def put(self, seams: Seams) -> PlaceFacts:
        """Survey the machine through `seams`."""
        return surveys.facts(
            self.settings,
            self.checkout,
            python=self.python,
            env=self.env,
            measure_s=MEASURE_S,
            need_headers=self.need_headers,
            seams=seams,
        )


def survey_disks(question: Question) -> PlaceFacts:
    """Look at checkout and disks, not at Pythons."""
    return question.put(Seams(find_pythons=lambda *args, **options: ()))


def survey_pythons(question: Question) -> PlaceFacts:
    """Look at Pythons, not at disks, at the same time as the other half."""
    nowhere = Mount(Path("/"), "", "", "", "")
    return question.put(Seams(disk=lambda path, **options: Disk(path, path, nowhere)))


def root_chosen_before(env: Environ) -> Path | None:
    """Return the state root that an earlier run chose, or None."""
    return surveys.remembered_root(surveys.remembered_file(env))[0]


def apt_mirrors(distribution: str) -> list[str]:
    """Return the servers that apt connects to: none where it has a proxy of its own."""
    proxy = run(["apt-config", "shell", "P", "Acquire::http::Proxy"], timeout=10)
    if proxy.ok and proxy.out.strip():
        return []
    found = apt_sources.mirrors(apt_sources.read(), distribution)
    return [source.uri for source in found]


def look_at_disk(path: Path) -> Disk:
    """Look at a disk through a child that can be left behind when it hangs."""
    return look.disk(path, measure_s=0)


@dataclass(frozen=True)
class Probes:
    """The functions that read the machine; each may be replaced by a fake."""

    distribution: Callable[[], Distribution] = system.distribution
    glibc: Callable[[], str] = system.glibc
    glibc_headers: Callable[[], str] = system.glibc_headers
    wsl: Callable[[], bool] = system.wsl
    container: Callable[[], str] = system.container
    module: Callable[[], Module | None] = system.kernel_module
    shm_bytes: Callable[[], int | None] = system.shm_bytes
    memory: Callable[[], Memory] = host_memory.read
    cores: Callable[[], Cores] = host_memory.cores
    toolkits: Callable[[Environ, Path | None], list[Toolkit]] = cuda.find
    compilers: Callable[[Environ], list[HostCompiler]] = host_compilers.find
    brought: Callable[[Path], list[HostCompiler]] = brought
    recipes: Callable[[str, str], list[Recipe]] = recipes
    have_dpkg: Callable[[], bool] = have_dpkg
    gpus: Callable[[], Gpus] = gpu.read
    pci_cards: Callable[[], list[PciCard]] = pci.nvidia_cards
    program: Callable[[str, Environ], Program | None] = programs.find
    disks: Callable[[Question], PlaceFacts] = survey_disks
    pythons: Callable[[Question], PlaceFacts] = survey_pythons
    chosen_root: Callable[[Environ], Path | None] = root_chosen_before
    stubs: Callable[[Environ], list[Path]] = loader.stubs
    cudnn: Callable[[Environ, Path | None], list[Cudnn]] = loader.cudnn
    disk: Callable[[Path], Disk] = look_at_disk
    text: Callable[[Path], tuple[str | None, str]] = look.text
    mirrors: Callable[[str], list[str]] = apt_mirrors
    reach: Callable[[str], str] = reach.problem
