# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory, processors and temporary files."""

from __future__ import annotations

from tools.rig.base.console import size
from tools.rig.base.errors import UsageError
from tools.rig.builds import jobs
from tools.rig.builds.environment import check_tmpdir
from tools.rig.host import storage
from tools.rig.steps.checks.facts import GIB, Facts
from tools.rig.steps.checks.registry import Outcome, check


@check("memory", "memory", source="/proc/meminfo; memory cgroup")
def memory(facts: Facts) -> Outcome:
    """Say for how many of the largest compiles at once there is room."""
    have, cores = facts.memory, facts.cores
    if not have.total:
        return Outcome("unknown", "cannot read /proc/meminfo")
    per_job = facts.profile.gib_per_job * GIB
    limit = f", limited to {size(have.limit)} by its cgroup" if have.limit else ""
    detail = (
        f"{size(have.usable)} of {size(have.total)} free{limit}; {cores.usable} cores"
    )
    data = {"total": have.total, "limit": have.limit, "cores": cores.usable}
    measured = {"usable": have.usable, "available": have.available}
    if have.usable < per_job:
        return Outcome(
            "warn",
            f"{detail}; one compile may take {facts.profile.gib_per_job} GiB and the "
            "kernel may end it",
            hint="free memory, add swap, or raise the container's limit",
            data=data,
            measured=measured,
        )
    each = facts.profile.gib_per_job
    fit = jobs.fitting(have.usable, cores.usable, each)
    asked = facts.settings.jobs
    most = f", never more than {asked} (MAX_JOBS)" if asked else ""
    return Outcome(
        "ok",
        f"{detail}: room for {fit} compiles of {each} GiB, and more of smaller ones"
        f"{most}",
        data=data,
        measured=measured,
    )


@check("tmpdir", "temporary files", source="TMPDIR; /proc/self/mountinfo")
def tmpdir(facts: Facts) -> Outcome:
    """See whether compilers would write their temporary files into memory."""
    disk = facts.disk(facts.temp)
    if disk.hung:
        return Outcome(
            "warn",
            disk.problem,
            hint="unset TMPDIR, or set it to a folder on a local disk",
            workaround="TMPDIR on the local disk",
        )
    try:
        check_tmpdir(facts.env)
    except UsageError as exc:
        return Outcome("fail", exc.what, hint=exc.hint)
    if not disk.exists or not disk.writable:
        return Outcome(
            "warn",
            f"{facts.temp} cannot be written to",
            hint="unset TMPDIR, or set it to a folder on a local disk",
            workaround="TMPDIR on the local disk",
        )
    kind = storage.kind(disk.mount.fs)
    data = {"fs": disk.mount.fs, "kind": kind}
    if kind == "memory":
        return Outcome(
            "warn",
            f"{facts.temp} is {disk.mount.fs}: temporary files of nvcc take memory "
            f"there ({size(disk.free_bytes)} free)",
            hint="export TMPDIR=/var/tmp",
            workaround="TMPDIR on the local disk",
            data=data,
        )
    if disk.free_bytes < facts.profile.gib_per_job * GIB:
        return Outcome(
            "warn",
            f"{facts.temp} has only {size(disk.free_bytes)} free",
            hint="export TMPDIR=/var/tmp",
            workaround="TMPDIR on the local disk",
            data=data,
        )
    return Outcome(
        "ok",
        f"{facts.temp} on {disk.mount.fs}, {size(disk.free_bytes)} free",
        data=data,
    )
