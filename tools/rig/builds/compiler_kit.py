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

from tools.rig.base.errors import CannotError, RigError, StepFailed
from tools.rig.base.run import run
from tools.rig.base.state import SENTINEL, remove_made
from tools.rig.builds.private_apt import (
    PrivateApt,
    archive_owner,
    have_dpkg,
    machine_archive,
    unpack,
)
from tools.rig.host import compilers, system
from tools.rig.host.compilers import HostCompiler

_OLDEST = 10
"""The oldest g++ worth bringing: the first with the C++20 that targets ask for."""


def brought(toolkits: Path) -> list[HostCompiler]:
    """Return the compilers that an earlier run brought, newest first."""
    found = []
    for folder in sorted(toolkits.glob("gcc-*"), reverse=True):
        major = folder.name.rpartition("-")[2]
        path = folder / "usr" / "bin" / f"g++-{major}"
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
    """
    named = f"apt-get install g++-{newest}"
    if not have_dpkg() or not any(c.family == "gcc" for c in compilers.find(env)):
        raise CannotError(
            "no host C++ compiler that CUDA accepts is installed",
            usual=f"CUDA here takes g++ up to {newest}.",
            hint=named,
        )
    here = system.distribution()
    distribution, suite = archive_owner(here), here.codename
    errors = []
    for major in range(newest, _OLDEST - 1, -1):
        try:
            return _bring_one(major, toolkits, env, distribution, suite, mirror)
        except StepFailed as exc:
            errors.append(f"g++-{major}: {exc.what}")
        except RigError as exc:
            errors.append(exc.what)
            break
    raise CannotError(
        f"no g++ up to {newest} could be brought", details=errors, hint=named
    )


def _bring_one(
    major: int,
    toolkits: Path,
    env: Mapping[str, str],
    distribution: str,
    suite: str,
    mirror: str | None,
) -> HostCompiler:
    final = toolkits / f"gcc-{major}"
    path = final / "usr" / "bin" / f"g++-{major}"
    if (final / SENTINEL).is_file():
        return compilers.probe(path)
    archive = machine_archive(distribution, suite, "main", mirror)
    apt = PrivateApt(toolkits / "downloads" / f"{suite}-main", [archive], env)
    apt.update()
    debs = apt.download(_packages(apt, major))
    work = toolkits / f".gcc-{major}.{os.getpid()}"
    work.mkdir(parents=True)
    (work / SENTINEL).touch()
    try:
        for deb in debs:
            unpack(deb, work)
        made = compilers.probe(work / "usr" / "bin" / f"g++-{major}")
        if made.problem or made.major != major:
            raise StepFailed(f"the brought g++-{major} {made.problem or 'is another'}")
        os.rename(work, final)
    finally:
        remove_made(work)
    for deb in debs:
        deb.unlink(missing_ok=True)
    return compilers.probe(path)


def _packages(apt: PrivateApt, major: int) -> list[str]:
    """Name the packages of one gcc; newer releases split each by target triplet."""
    names = [f"g++-{major}", f"gcc-{major}", f"cpp-{major}"]
    names += [f"libstdc++-{major}-dev", f"libgcc-{major}-dev", f"gcc-{major}-base"]
    triplet = f"{platform.machine().replace('_', '-')}-linux-gnu"
    split = [f"{name}-{triplet}" for name in names[:3]]
    known = run(["apt-cache", "show", "--no-all-versions", split[0]], env=apt.env)
    return names + (split if known.ok else [])
