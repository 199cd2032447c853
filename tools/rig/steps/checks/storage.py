# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Disks: where the environment goes, room for everything, the checkout's own disk."""

from __future__ import annotations

from pathlib import Path

from tools.rig.base.console import size
from tools.rig.base.errors import CannotError, quoted
from tools.rig.builds.candidates import slow, speed
from tools.rig.host import storage
from tools.rig.host.look import Disk, Hung
from tools.rig.steps.checks.facts import GIB, Facts
from tools.rig.steps.checks.registry import Outcome, check

_FEW_INODES = 200_000
_ABSENT = "no checkout is here; what is built lies beside the environment"


@check("environment", "place for the environment", source="measured disks")
def environment(facts: Facts) -> Outcome:
    """Say where the environment would go, as the build decides it."""
    try:
        plan = facts.place
    except CannotError as exc:
        why = "; ".join(exc.details)
        detail = f"{exc.what}: {why}" if why else exc.what
        return Outcome("fail", detail, hint=exc.hint)
    chosen = plan.verdicts[-1].candidate.disk
    data = {"fs": chosen.mount.fs, "link": plan.link_action}
    measured = {"root": str(plan.root.path), "free": chosen.free_bytes}
    detail = f"{plan.root.path} ({plan.why}), {size(chosen.free_bytes)} free"
    if plan.link_note:
        detail += f"; {plan.link_note}"
        return Outcome("warn", detail, plan.link_hint, "", data, measured)
    return Outcome("ok", detail, data=data, measured=measured)


@check("space-cache", "room for uv's cache", source="statvfs")
def space_cache(facts: Facts) -> Outcome:
    """See that uv's cache has room, where the user keeps it somewhere of their own."""
    given = facts.env.get("UV_CACHE_DIR")
    if not given:
        return Outcome("skip", "uv's cache lies with the environment")
    # downloads take about half of what they unpack to
    need = -(-facts.profile.need_gib // 2)
    return _space(facts.disk(Path(given)), need, "export UV_CACHE_DIR=...")


@check("space-build", "room for the build", source="statvfs")
def space_build(facts: Facts) -> Outcome:
    """See that the checkout's disk has room for objects and fetched sources."""
    need = -(-facts.profile.need_gib // 6)
    disk = facts.disks.checkout_disk
    return _space(disk, need, f"df -h {quoted(disk.path)}")


@check(
    "checkout-disk",
    "the checkout's disk",
    source="/proc/self/mountinfo; measured creates, stats, renames, unlinks",
)
def checkout_disk(facts: Facts) -> Outcome:
    """Judge small-file operations where the checkout lies."""
    if facts.absent:
        return Outcome("skip", _ABSENT)
    try:
        disk = facts.disks.checkout_disk
    except Hung as exc:
        detail = exc.what + (f" ({exc.details[0]})" if exc.details else "")
        return Outcome("fail", detail, hint=exc.hint, data={"fs": exc.mount.fs})
    kind = storage.kind(disk.mount.fs)
    data = {"fs": disk.mount.fs, "kind": kind}
    if disk.problem:
        return Outcome(
            "fail",
            f"{disk.mount}: {disk.problem}; a build writes into its checkout",
            hint="make it writable, or take another checkout with --source",
            data=data,
        )
    if disk.rates is None:
        return Outcome("unknown", f"{disk.mount}: not measured", data=data)
    measured = {"rate": disk.rates.slowest, "latency_ms": disk.rates.latency_ms}
    detail = f"{kind}, {speed(disk)}"
    if kind in ("network", "memory") or slow(disk):
        return Outcome(
            "warn",
            detail,
            hint="invoke venv-local",
            workaround="environment on a local disk",
            data={**data, "slow": True},
            measured=measured,
        )
    return Outcome("ok", detail, data={**data, "slow": False}, measured=measured)


@check("checkout-owner", "the checkout's owner", source="stat; git's ownership rule")
def checkout_owner(facts: Facts) -> Outcome:
    """Compare the checkout's owner with the current user, as git does."""
    if facts.absent:
        return Outcome("skip", _ABSENT)
    owner, me = facts.disks.checkout.owner, facts.disks.uid
    data = {"foreign": owner != me}
    if owner == me:
        return Outcome("ok", f"yours (uid {me})", data=data)
    return Outcome(
        "warn",
        f"owned by uid {owner}, you are uid {me}: git refuses it",
        hint="invoke git-safe",
        workaround="git ownership allowed for the build's processes",
        data=data,
    )


def _space(disk: Disk, need_gib: int, hint: str) -> Outcome:
    if disk.hung:
        return Outcome("fail", disk.problem, hint=hint)
    detail = f"{size(disk.free_bytes)} free on {disk.mount.point}"
    data = {"fs": disk.mount.fs}
    measured = {"free": disk.free_bytes, "inodes": disk.free_inodes}
    if disk.free_bytes < need_gib * GIB:
        detail += f", {need_gib} GiB are wanted"
        return Outcome("fail", detail, hint, "", data, measured)
    if disk.free_inodes < _FEW_INODES:
        detail += f", but only {disk.free_inodes} inodes"
        hint = f"df -i {quoted(disk.mount.point)}"
        return Outcome("warn", detail, hint, "", data, measured)
    return Outcome("ok", detail, data=data, measured=measured)
