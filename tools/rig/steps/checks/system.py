# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Distribution, C library, and what kind of machine this is."""

from __future__ import annotations

from tools.rig.host import compat
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

_SHM_WANTED = 1 << 30


@check("distribution", "distribution", source="os-release")
def distribution(facts: Facts) -> Outcome:
    """Say which distribution this is."""
    here = facts.distribution
    if not here.id:
        return Outcome("unknown", "no os-release file says which distribution this is")
    return Outcome(
        "ok",
        here.name or here.id,
        data={"id": here.id, "version": here.version, "codename": here.codename},
    )


@check("glibc", "C library headers", source="features.h; compatibility.json A2")
def glibc(facts: Facts) -> Outcome:
    """Compare the C library's headers with the toolkit that a build would use."""
    version = facts.glibc
    if not version:
        return Outcome(
            "unknown",
            "this is not glibc, or its development package is missing",
            hint="apt-get install libc6-dev",
        )
    data = {"glibc": version}
    if not facts.release:
        clashes = compat.glibc_clashes(version, facts.profile.toolkit_max)
        return Outcome(
            "ok" if not clashes else "warn",
            f"glibc {version}; no toolkit to compare it with",
            data=data,
        )
    clashes = compat.glibc_clashes(version, facts.release)
    if not clashes:
        return Outcome(
            "ok", f"glibc {version} suits CUDA {facts.release}'s headers", data=data
        )
    return Outcome(
        "warn",
        f"glibc {version} and CUDA {facts.release} both declare {', '.join(clashes)}; "
        "no toolkit that can target Volta is free of it",
        hint="invoke shim-glibc",
        workaround=f"glibc {version} header shim",
        data={**data, "clashes": list(clashes)},
    )


@check("machine", "kind of machine", source="/proc, marker files, environment")
def machine(facts: Facts) -> Outcome:
    """Say whether this is WSL or a container."""
    container = facts.probes.container()
    wsl = facts.probes.wsl()
    data = {"container": container, "wsl": wsl}
    if wsl:
        return Outcome(
            "warn",
            "WSL: the driver is Windows' own, and /mnt/c is a network file system",
            hint="keep checkout and environment on the Linux disk, not below /mnt",
            data=data,
        )
    if container:
        return Outcome(
            "ok",
            f"a {container} container: driver and memory limits come from its host",
            data=data,
        )
    return Outcome("ok", "neither WSL nor a container", data=data)


@check("shm", "shared memory", source="statvfs /dev/shm")
def shm(facts: Facts) -> Outcome:
    """See whether two tensor-parallel workers have room in /dev/shm."""
    size = facts.probes.shm_bytes()
    if size is None:
        return Outcome(
            "warn",
            "/dev/shm is not there; NCCL and vLLM's workers use it",
            hint="mount -t tmpfs tmpfs /dev/shm",
        )
    gib = size / (1 << 30)
    if size < _SHM_WANTED:
        return Outcome(
            "warn",
            f"/dev/shm holds {size >> 20} MiB; serving on two cards wants 1 GiB",
            hint="docker run --shm-size=8g ... (or --ipc=host)",
            data={"small": True},
        )
    return Outcome("ok", f"/dev/shm holds {gib:.1f} GiB", data={"small": False})
