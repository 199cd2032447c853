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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.base.run import run
from tools.rig.builds import apt_sources, inventory
from tools.rig.builds.private_apt import (
    PrivateApt,
    archive_owner,
    have_dpkg,
    machine_archive,
    unpack,
)
from tools.rig.builds.workbench import publish, workbench
from tools.rig.host import compat, compilers, system
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.system import Distribution

ASK_S = 30.0
"""Seconds that the machine's package lists may take to answer."""

_OLDEST = 10
"""The oldest g++ worth bringing: the first with the C++20 that targets ask for."""


def brought(toolkits: Path) -> list[HostCompiler]:
    """Return the compilers that an earlier run brought, newest first."""
    found = []
    for folder in sorted(toolkits.glob("gcc-*"), key=_major_of, reverse=True):
        path = _program(folder, _major_of(folder))
        if inventory.is_ours(folder) and path.exists():
            found.append(_seen(folder, path))
    return found


def folder_of(compiler: HostCompiler) -> Path:
    """Return the folder that a brought compiler was unpacked in: above ``usr/bin``."""
    return compiler.path.parent.resolve().parent.parent


def offered(newest: int, here: Distribution) -> int | None:
    """Ask the machine's own package lists for the newest g++ up to `newest`.

    Returns
    -------
    int or None
        Its major version, 0 when there is none; None when the lists do not say, since
        they are not here or leave out a part that our own would read.
    """
    names = {f"g++-{major}": major for major in range(newest, _OLDEST - 1, -1)}
    # unlike show, madison leaves out what is only known as installed
    answer = run(["apt-cache", "madison", "g++", *names], timeout=ASK_S)
    listed = {line.split("|")[0].strip() for line in answer.out.splitlines()}
    if not answer.ok or "g++" not in listed:
        return None
    best = max((major for name, major in names.items() if name in listed), default=0)
    owner = archive_owner(here)
    whole = owner == "debian" or any(
        "universe" in source.components
        for source in apt_sources.mirrors(apt_sources.read(), owner)
    )
    return best if best or whole else None


def cannot(
    newest: int,
    hosts: Sequence[HostCompiler],
    here: Distribution,
    *,
    offline: bool = False,
    dpkg: bool = True,
) -> tuple[str, str]:
    """Say why no g++ up to `newest` can be brought, and what to type instead.

    Parameters
    ----------
    newest
        The newest major version that will do.
    hosts
        The compilers of the machine; those that were brought do not count.
    here
        The distribution.
    offline
        Whether nothing may be fetched.
    dpkg
        Whether packages can be unpacked here.

    Returns
    -------
    tuple of str
        Reason and hint, both empty when one can be brought.
    """
    owner = archive_owner(here) if dpkg else ""
    listed = offered(newest, here) if owner else None
    none_fits = f"this distribution's archive has no g++ from {_OLDEST} to {newest}"
    if listed == 0:
        return none_fits, (
            f"install one and export NVCC_CCBIN=/where/it/lies/g++-{newest}"
        )
    if offline:
        why = "ONECAT_OFFLINE=1 forbids bringing one"
    elif not owner:
        why = "none can be brought on this distribution"
    elif not any(c.family == "gcc" and not c.problem for c in hosts):
        why = "bringing one takes the parts of an installed g++"
    else:
        return "", ""
    if here.family == "rhel":
        return why, f"sudo dnf install {compat.package('g++', here.family)}"
    package = f"g++-{listed}" if listed else compat.package("g++", here.family)
    return why, f"sudo apt-get install {package}"


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
    here = system.distribution()
    for found in brought(toolkits):
        if not found.problem and _OLDEST <= (found.major or 0) <= newest:
            return found
    why, hint = cannot(newest, compilers.find(env), here, dpkg=have_dpkg())
    if why:
        raise CannotError(
            f"no host C++ compiler that CUDA accepts is installed, and {why}",
            usual=f"CUDA here takes g++ up to {newest}.",
            hint=hint,
        )
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
    if not inventory.is_ours(final) or _seen(final, _program(final, major)).problem:
        inventory.refuse(final, inventory.damage(final) or "it does not work")
        debs = apt.download(_packages(apt, major))
        tree = work / "tree"
        for deb in debs:
            unpack(deb, tree)
        mend_links(tree)
        made = compilers.probe(_program(tree, major))
        if made.problem or made.major != major:
            raise StepFailed(
                f"the brought g++-{major} {made.problem or 'is another'}",
                hint=f"install one and export NVCC_CCBIN=/where/it/lies/g++-{major}",
            )
        inventory.seal(tree)
        inventory.set_aside(final, work)
        publish(tree, final)
        for deb in debs:
            deb.unlink(missing_ok=True)
    return compilers.probe(_program(final, major))


def _seen(folder: Path, path: Path) -> HostCompiler:
    """Ask a brought compiler, and compare its folder with what was brought."""
    broken = inventory.damage(folder)
    found = compilers.probe(path)
    return replace(found, problem=f"is damaged: {broken}") if broken else found


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
