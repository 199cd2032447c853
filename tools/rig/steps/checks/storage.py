# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Disks: room for everything, and how the checkout's own one behaves."""

from __future__ import annotations

from pathlib import Path

from tools.rig.base.console import size
from tools.rig.host import storage
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.registry import Outcome, check

SLOW_RATE = 500.0
"""Metadata operations a second below which an environment belongs on another disk.

A local disk does thousands; a network disk with 60 ms of latency does 16.
"""

_GIB = 1 << 30
_FEW_INODES = 200_000


@check("space-environment", "room for the environment", source="statvfs")
def space_environment(facts: Facts) -> Outcome:
    """See that the environment and everything else on its disk has room."""
    return _space(facts, _environment_place(facts))


@check("space-cache", "room for uv's cache", source="statvfs")
def space_cache(facts: Facts) -> Outcome:
    """See that uv's cache has room, when it lies on a disk of its own."""
    return _space(facts, facts.uv_cache)


@check("space-build", "room for temporary files", source="statvfs")
def space_build(facts: Facts) -> Outcome:
    """See that temporary files have room, when on a disk of their own."""
    return _space(facts, facts.temp)


@check(
    "checkout-disk",
    "the checkout's disk",
    source="/proc/self/mountinfo; measured creates, stats, renames, unlinks",
)
def checkout_disk(facts: Facts) -> Outcome:
    """Measure small-file operations where the checkout lies."""
    disk = facts.disk(facts.source, measure=True)
    kind = storage.kind(disk.mount.fs)
    data = {"fs": disk.mount.fs, "kind": kind}
    if disk.hung:
        server = disk.details[0] if disk.details else str(disk.mount)
        return Outcome(
            "fail",
            f"{disk.problem} ({server})",
            hint="mount it anew, or take a checkout on another disk",
            data=data,
        )
    if disk.rates is None:
        why = disk.problem or "not measured"
        return Outcome(
            "warn" if disk.problem else "unknown",
            f"{disk.mount.fs or 'unknown file system'}: {why}",
            hint="a build writes into its checkout: make it writable, or take another "
            "one with --source"
            if disk.problem
            else "",
            data=data,
        )
    rate, latency = disk.rates.slowest, disk.rates.latency_ms
    detail = (
        f"{disk.mount.fs} ({kind}): {rate:.0f} operations/s, {latency:.1f} ms a create"
    )
    measured = {"rate": rate, "latency_ms": latency}
    if kind == "network" or rate < SLOW_RATE:
        return Outcome(
            "warn",
            f"{detail}; an environment there would be slow",
            hint="invoke venv-local",
            workaround="environment on a local disk",
            data={**data, "slow": True},
            measured=measured,
        )
    return Outcome("ok", detail, data={**data, "slow": False}, measured=measured)


@check("checkout-owner", "the checkout's owner", source="stat; git's ownership rule")
def checkout_owner(facts: Facts) -> Outcome:
    """Compare the checkout's owner with the current user, as git does."""
    disk = facts.disk(facts.source, measure=True)
    me = facts.probes.uid()
    if disk.owner is None:
        return Outcome("unknown", disk.problem or f"{facts.source} is no folder")
    data = {"foreign": disk.owner != me}
    if disk.owner == me:
        return Outcome("ok", f"yours (uid {me})", data=data)
    return Outcome(
        "warn",
        f"owned by uid {disk.owner}, you are uid {me}: git refuses it",
        hint="invoke git-safe",
        workaround="git ownership allowed for the build's processes",
        data=data,
    )


def _environment_place(facts: Facts) -> Path:
    if facts.root:
        return facts.root.path
    chosen = facts.settings.local_root
    return Path(chosen) if chosen else facts.source


def _space(facts: Facts, place: Path) -> Outcome:
    """Judge one place by all that will be written to the same disk."""
    disk = facts.disk(place)
    if disk.hung:
        return Outcome("unknown", disk.problem)
    if not disk.free_bytes and disk.problem:
        return Outcome("unknown", f"{place}: {disk.problem}")
    needs = _needs(facts)
    wanted = sum(
        gib
        for other, gib in needs.items()
        if other == place or facts.disk(other).mount.device == disk.mount.device
    )
    detail = f"{size(disk.free_bytes)} free for {place} on {disk.mount.point}"
    measured = {"free": disk.free_bytes, "inodes": disk.free_inodes}
    data = {"fs": disk.mount.fs}
    movable = facts.root is None and not facts.settings.local_root
    if disk.free_bytes < wanted * _GIB:
        lacking = f"{detail}; {wanted} GiB are wanted there"
        if place == facts.temp:
            return Outcome(
                "warn",
                lacking,
                hint="export TMPDIR=... on a larger disk",
                workaround="TMPDIR on the local disk",
                data=data,
                measured=measured,
            )
        if movable:
            return Outcome(
                "warn",
                lacking,
                hint="export ONECAT_LOCAL_ROOT=... on a larger disk",
                workaround="environment on another disk",
                data=data,
                measured=measured,
            )
        name = "UV_CACHE_DIR" if place == facts.uv_cache else "ONECAT_LOCAL_ROOT"
        return Outcome(
            "fail",
            lacking,
            hint=f"export {name}=... on a larger disk",
            data=data,
            measured=measured,
        )
    if disk.free_inodes < _FEW_INODES:
        return Outcome(
            "warn",
            f"{detail}, but only {disk.free_inodes} inodes",
            hint=f"df -i '{disk.mount.point}'",
            data=data,
            measured=measured,
        )
    return Outcome("ok", detail, data=data, measured=measured)


def _needs(facts: Facts) -> dict[Path, int]:
    """Return GiB wanted by place: environment, downloads, temporary files.

    Downloads take about half of what they unpack to; where cache and environment share
    a file system uv links or clones, so that they are not there twice.
    """
    environment = _environment_place(facts)
    same = facts.disk(environment).mount.device == (
        facts.disk(facts.uv_cache).mount.device
    )
    needs = {environment: facts.profile.need_gib}
    needs.setdefault(facts.uv_cache, 0 if same else -(-facts.profile.need_gib // 2))
    needs.setdefault(facts.temp, facts.profile.gib_per_job)
    return needs
