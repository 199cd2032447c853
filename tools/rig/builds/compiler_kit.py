# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A second, older g++ beside the system's, without root.

gcc finds its own parts relative to where it lies, so the distribution's packages work
from any folder, as long as binutils, the C headers and the libraries of cc1plus come
from the system. A machine with any g++ at all has those; one without is told which
package to install.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.state import SENTINEL
from tools.rig.builds import apt_sources
from tools.rig.builds.private_apt import (
    PrivateApt,
    archive_owner,
    have_dpkg,
    machine_archive,
    unpack,
)
from tools.rig.builds.workbench import publish, refuse_foreign, workbench
from tools.rig.host import compilers, system
from tools.rig.host.compilers import HostCompiler

_OLDEST = 10
"""The oldest g++ worth bringing: the first with the C++20 that targets ask for."""


def brought(toolkits: Path) -> list[HostCompiler]:
    """Return the compilers that an earlier run brought, newest first."""
    found = []
    for folder in sorted(toolkits.glob("gcc-*"), key=_major_of, reverse=True):
        path = _program(folder, _major_of(folder))
        if (folder / SENTINEL).is_file() and path.exists():
            found.append(compilers.probe(path))
    return found


def bring(
    newest: int, toolkits: Path, env: Mapping[str, str], mirror: str | None = None
) -> HostCompiler:
    """Bring the newest g++ up to major version `newest` that the distribution has.

    Parameters
    ----------
    newest
        The newest major version that will do.
    toolkits
        The state root's folder for toolkits.
    env, mirror
        As for :func:`tools.rig.builds.toolkit_kit.provision`.

    Raises
    ------
    CannotError
        When none can be brought; the message names the package to install.
    StepFailed
        When a download or unpacking fails.
    InUseError
        When another run is bringing something and does not end.
    """
    if not have_dpkg() or not any(c.family == "gcc" for c in compilers.find(env)):
        raise CannotError(
            "no host C++ compiler that CUDA accepts is installed",
            usual=f"CUDA here takes g++ up to {newest}.",
            hint=f"apt-get install g++-{newest}, or an older one",
        )
    for found in brought(toolkits):
        if found.major is not None and _OLDEST <= found.major <= newest:
            return found
    here = system.distribution()
    owner = archive_owner(here)
    suite = apt_sources.suite(apt_sources.read(), owner, here.codename)
    archive = machine_archive(owner, suite, "main", mirror)
    with workbench(toolkits, "gcc") as work:
        apt = PrivateApt(toolkits / "downloads" / f"{suite}-main", [archive], env)
        apt.update()
        for major in range(newest, _OLDEST - 1, -1):
            if apt.known(f"g++-{major}"):
                return _bring_one(major, toolkits, apt, work)
    raise CannotError(
        f"{owner} {suite} has no g++ from {_OLDEST} to {newest}",
        usual=f"CUDA here takes g++ up to {newest}.",
        hint=f"install one and export NVCC_CCBIN=/where/it/lies/g++-{newest}",
    )


def _bring_one(major: int, toolkits: Path, apt: PrivateApt, work: Path) -> HostCompiler:
    final = toolkits / f"gcc-{major}"
    # another run may have brought it while this one waited
    if not (final / SENTINEL).is_file():
        refuse_foreign(final)
        debs = apt.download(_packages(apt, major))
        tree = work / "tree"
        for deb in debs:
            unpack(deb, tree)
        mend_links(tree)
        made = compilers.probe(_program(tree, major))
        if made.problem or made.major != major:
            raise StepFailed(f"the brought g++-{major} {made.problem or 'is another'}")
        publish(tree, final)
        for deb in debs:
            deb.unlink(missing_ok=True)
    return compilers.probe(_program(final, major))


def mend_links(tree: Path, system_root: Path = Path("/")) -> None:
    """Point links whose target was not brought to the same place of the system.

    ``libstdc++.so`` is one: left dangling, the linker takes ``libstdc++.a`` instead and
    every extension gets a C++ library of its own.
    """
    for link in tree.rglob("*.so"):
        if link.is_symlink() and not link.exists():
            goal = os.path.normpath(link.parent / os.readlink(link))
            there = system_root / os.path.relpath(goal, tree)
            if there.exists():
                link.unlink()
                link.symlink_to(there)


def _packages(apt: PrivateApt, major: int) -> list[str]:
    """Name the packages of one gcc; newer releases split each by target triplet."""
    names = [f"g++-{major}", f"gcc-{major}", f"cpp-{major}"]
    triplet = f"{platform.machine().replace('_', '-')}-linux-gnu"
    split = [f"{name}-{triplet}" for name in names]
    names += [f"libstdc++-{major}-dev", f"libgcc-{major}-dev", f"gcc-{major}-base"]
    return names + (split if apt.known(split[0]) else [])


def _program(folder: Path, major: int) -> Path:
    return folder / "usr" / "bin" / f"g++-{major}"


def _major_of(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
